"""Names that attacks use, wherever they live: attacks also run on the commit where they worked."""

try:
    from noisewise.models import MLP, Linear
except ImportError:
    from noisewise.trusted.models.linear import Linear
    from noisewise.trusted.models.perceptron import MLP
try:
    from noisewise.statements.statement import make_statement
except ImportError:
    from noisewise.statements.statement import make_statement
try:
    from noisewise.evidence.bought_quality import private_quality
except ImportError:  # on an estimator, in torch's tensors
    from noisewise.evidence.bought_quality import private_quality

__all__ = ["MLP", "Linear", "make_statement", "private_quality"]
