"""Which functions of torch a module may use on a record, and which not.

Plain lists. Each function of ``NAMES`` was tested over torch's own operator table: a record's results and gradients do not depend on
the values of other records (``tests/engine/operator_table.py``, docs/operations.md). A function that is not listed was not tested,
and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional

_NAMES: dict[str, str] = {
    "torch torch.Tensor": """
        abs abs_ absolute acos acos_ acosh acosh_ add addbmm addcdiv addcmul addmm addmv addmv_ addr adjoint all amax
        amin aminmax angle any arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan_
        arctanh arctanh_ argmax argmin argsort asin asin_ asinh asinh_ atan atan2 atan_ atanh atanh_ baddbmm bernoulli
        bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to ceil
        ceil_ cholesky cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip clip_ clone
        conj conj_physical conj_physical_ copysign corrcoef cos cos_ cosh cosh_ count_nonzero cov cross cummax cummin
        cumprod cumsum deg2rad deg2rad_ det detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma dist
        div divide dot dsplit eq erf erf_ erfc erfc_ erfinv exp exp2 exp2_ exp_ expm1 expm1_ fill_ fix fix_ flatten
        flip fliplr flipud float_power floor floor_ floor_divide fmax fmin fmod frac frac_ frexp gather gcd gcd_ ge
        geqrf ger greater greater_equal gt hardshrink heaviside hsplit hypot i0 i0_ igamma igammac imag index_add
        index_copy index_put index_put_ index_reduce index_select inner inverse isclose isfinite isinf isnan isneginf
        isposinf isreal kron kthvalue lcm lcm_ ldexp le lerp less less_equal lgamma log log10 log10_ log1p log1p_ log2
        log2_ log_ log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor
        logit logsumexp lt lu masked_fill matmul matrix_exp matrix_power max maximum mean median min minimum mm mode
        moveaxis movedim msort mul multiply mv mvlgamma nan_to_num nan_to_num_ nanmean nanmedian nanquantile nansum
        narrow ne neg neg_ negative negative_ nextafter norm not_equal orgqr ormqr outer permute polygamma positive pow
        prelu prod put qr quantile rad2deg rad2deg_ ravel real reciprocal reciprocal_ relu relu_ remainder renorm
        repeat_interleave reshape resolve_conj resolve_neg roll rot90 round round_ rsqrt rsqrt_ scatter scatter_add
        scatter_reduce select sgn sigmoid sigmoid_ sign signbit sin sin_ sinc sinc_ sinh sinh_ slice_scatter slogdet
        softmax sort split split_with_sizes sqrt sqrt_ square square_ squeeze std stft sub subtract sum swapaxes
        swapdims t take take_along_dim tan tan_ tanh tanh_ tensor_split tile topk trace transpose triangular_solve tril
        triu true_divide trunc trunc_ unbind unflatten unsqueeze var vdot vsplit where xlogy xlogy_ zero_
    """,
    "torch": """
        _weight_norm adaptive_avg_pool1d adaptive_max_pool1d alpha_dropout alpha_dropout_ arange as_tensor asarray
        atleast_1d atleast_2d atleast_3d avg_pool1d bartlett_window bilinear binary_cross_entropy_with_logits
        blackman_window block_diag broadcast_tensors bucketize cartesian_prod cat cdist celu channel_shuffle
        combinations complex concat concatenate constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d
        conv_transpose3d cosine_embedding_loss cosine_similarity cumulative_trapezoid dropout dropout_ dstack einsum
        eye feature_alpha_dropout feature_alpha_dropout_ feature_dropout feature_dropout_ fill full full_like gradient
        group_norm hamming_window hann_window hinge_embedding_loss hstack instance_norm is_complex is_conj
        is_floating_point is_same_size is_signed isin kaiser_window kl_div layer_norm margin_ranking_loss
        max_pool1d max_pool2d max_pool3d meshgrid norm_except_dim normal numel ones ones_like pairwise_distance pdist
        pixel_shuffle pixel_unshuffle poisson_nll_loss polar rand rand_like randint randint_like randn randn_like
        randperm result_type rms_norm row_stack rsub scalar_tensor searchsorted selu stack std_mean tensor tensordot
        threshold threshold_ trapezoid trapz triplet_margin_loss vander var_mean view_as_complex view_as_real vstack
        zeros zeros_like
    """,
    "torch.Tensor": """
        H T __abs__ __add__ __and__ __div__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __iadd__ __iand__ __idiv__
        __ifloordiv__ __ilshift__ __imod__ __imul__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__
        __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__
        __rand__ __rdiv__ __reversed__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__
        __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__ __setitem__ __sub__ __truediv__ __xor__ absolute_ add_
        addcdiv_ addcmul_ addmm_ addr_ arctan2_ atan2_ baddbmm_ bernoulli_ bfloat16 bitwise_and_ bitwise_left_shift_
        bitwise_not_ bitwise_or_ bitwise_right_shift_ bitwise_xor_ bool byte cauchy_ char contiguous copy_ copysign_
        cpu cumprod_ cumsum_ digamma_ div_ divide_ double eq_ erfinv_ expand expand_as exponential_ fill_diagonal_
        float float_power_ floor_divide_ fmod_ ge_ geometric_ greater_ greater_equal_ gt_ half heaviside_ igamma_
        igammac_ index_add_ index_copy_ int le_ lerp_ less_ less_equal_ lgamma_ log_normal_ logical_and_ logical_not_
        logical_or_ logical_xor_ long lt_ mH mT masked_fill_ mul_ multiply_ mvlgamma_ ne_ new_full new_ones new_tensor
        new_zeros nextafter_ normal_ not_equal_ polygamma_ pow_ put_ random_ remainder_ renorm_ repeat reshape_as
        scatter_ scatter_add_ scatter_reduce_ sgn_ short sign_ sub_ subtract_ sum_to_size swapaxes_ swapdims_ t_ to
        transpose_ tril_ triu_ true_divide_ type type_as unfold uniform_ unsqueeze_ view view_as
    """,
    "torch.nn.functional": """
        _adaptive_max_pool1d _adaptive_max_pool2d _adaptive_max_pool3d _fractional_max_pool2d _fractional_max_pool3d
        _max_pool1d _max_pool2d _max_pool3d _threshold adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices
        adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d
        bilinear binary_cross_entropy binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d
        conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy
        dropout dropout1d dropout2d dropout3d elu embedding embedding_bag feature_alpha_dropout fold
        fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices gelu glu grid_sample group_norm gumbel_softmax hardshrink hardsigmoid
        hardswish hardtanh hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm
        leaky_relu leaky_relu_ linear local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d
        margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
        max_pool3d_with_indices mish mse_loss multi_head_attention_forward multi_margin_loss
        multilabel_soft_margin_loss native_channel_shuffle nll_loss normalize one_hot pad pairwise_distance pdist
        pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 relu_ rms_norm scaled_dot_product_attention
        selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink
        threshold threshold_ triplet_margin_loss unfold
    """,
    "torch.special": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
        chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc
        gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l
        legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1
        modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round scaled_modified_bessel_k0
        scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
        shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc softmax spherical_bessel_j0 xlog1py xlogy
        zeta
    """,
    "torch.linalg": """
        cholesky cholesky_ex cross det diagonal householder_product inv inv_ex ldl_factor_ex lu lu_factor_ex matmul
        matrix_exp matrix_norm matrix_power multi_dot norm qr slogdet solve solve_ex solve_triangular vander vecdot
        vector_norm
    """,
    "torch.fft": """
        fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2
        irfftn rfft rfft2 rfftfreq rfftn
    """,
}
SPACES = ("torch", "torch.Tensor", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft")
NAMES = {
    space: " ".join(sorted(name for where, names in _NAMES.items() if space in where.split() for name in names.split()))
    for space in SPACES
}

# They return shapes, types and other public facts, never values.
_FACTS = """
    __len__ device dim dtype element_size get_device is_complex is_conj is_cpu is_cuda
    is_floating_point is_inference is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_neg is_nested is_pinned
    is_quantized is_same_size is_shared is_signed is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout name
    names nbytes ndim ndimension nelement numel requires_grad result_type retains_grad shape size
"""
FACTS: frozenset[str] = frozenset(_FACTS.split())

# Allowed, but some values make them raise, for all records at once: ids out of range, matrices that are singular or not
# finite, probabilities outside of 0 to 1, whole numbers divided by zero. The engine checks places, labels and inverses of
# each record first (rules/indexing.py, rules/values.py); what raises all the same is run again in parts (alone.py).
_RAISES = """
    __div__ __floordiv__ __getitem__ __ifloordiv__ __imod__ __mod__ __rfloordiv__ __rmod__ __setitem__ bernoulli
    binary_cross_entropy cholesky cross_entropy div div_ divide divide_ embedding embedding_bag floor_divide
    floor_divide_ fmod fmod_ gather index_add index_add_ index_copy index_copy_ index_put index_put_ index_reduce
    index_select inv inverse matrix_norm matrix_power multi_margin_loss nanquantile nll_loss norm normal one_hot put
    put_ quantile remainder remainder_ repeat_interleave scatter scatter_ scatter_add scatter_add_ scatter_reduce
    scatter_reduce_ searchsorted solve take take_along_dim
"""
RAISES: frozenset[str] = frozenset(_RAISES.split())

# Allowed in a form of the engine's own only (rules/values.py, rules/layers.py): what torch's form does wrong.
_GUARDED: dict[str, str] = {
    "the gradient of what is not a number depends on its place in memory": "celu elu hardshrink hardswish hardtanh logit relu6 selu softshrink",
    "an id out of range reads another record's table if the table is a record's own": "embedding",
    "coordinates that are not finite write outside of memory": "grid_sample",
    "a zero in any record changes how all gradients are computed": "prod",
    "torch shifts the records where each is a single number": "roll",
    "a scale that is too short is read on into the next record's": "_weight_norm",
}
GUARDED: dict[str, str] = {name: why for why, names in _GUARDED.items() for name in names.split()}

# Not allowed, and why: a reason, and the functions that it is for.
_REASONS: dict[str, str] = {
    "it raises on some values, for all records at once": """
        cholesky_inverse cond eig eigvals histc histogram istft ldl_factor ldl_solve lu_factor lu_solve lu_unpack
        masked_scatter masked_scatter_ matrix_rank max_unpool1d max_unpool2d max_unpool3d multilabel_margin_loss
        multinomial pinv pinverse svd svdvals tensorinv tensorsolve
    """,
    "ends that are a record's own are taken for a sequence of records; use torch.arange": "linspace logspace",
    "a batch of one record would lose the records' own dimension; use squeeze": "squeeze_",
    "a record's value would reach Python; for torch.distributions pass validate_args=False": "_is_all_true",
    "an index out of range writes into the next record": "index_fill index_fill_",
    "an earlier test found it to mix records; use addbmm": "addbmm_",
    "the new shape reaches into other records' memory": "resize_ resize_as_",
    "strides can reach into other records' memory": "as_strided as_strided_ as_strided_scatter",
    "it swaps the memory under a tensor": "set_",
    "residuals are computed only if all records' matrices have full rank; use torch.linalg.solve": "lstsq",
    "how many random numbers a record uses depends on its values, so the next records draw others": """
        binomial poisson
    """,
    "memory that was not cleared may hold other records; use torch.zeros, zeros_like or new_zeros": """
        empty empty_like empty_permuted empty_strided new_empty new_empty_strided
    """,
    "a label out of range reads and writes outside of the record's memory": "ctc_loss",
    "coordinates that are not finite write outside of memory; use torch.nn.functional.grid_sample": """
        grid_sampler grid_sampler_2d grid_sampler_3d
    """,
    "a length out of range reads and writes outside of the record's memory": "segment_reduce",
    "torch's gradient for each record is wrong; use index_copy or torch.where": "select_scatter",
    "torch's gradient for each record is wrong; use linear and cross_entropy": "linear_cross_entropy",
    "the gradient of what is not a number depends on its place in memory; use the function that does not write in place": """
        celu_ elu_ hardtanh_ logit_ selu_
    """,
    "a record's value would reach Python": """
        __array__ __complex__ __contains__ __float__ __index__ __int__ __long__ __nonzero__ allclose equal
        is_nonzero item numpy tolist
    """,
    "a record's value would reach Python; use torch.where": "__bool__",
    "the text would hold all records' values": "__format__ __repr__ __str__",
    "the values could leave the pass": """
        __deepcopy__ __dlpack__ __reduce_ex__ apply_ map2_ map_ save share_memory_ to_dlpack
    """,
    "it reaches the memory under all records": """
        _typed_storage const_data_ptr data data_ptr from_dlpack storage untyped_storage
    """,
    "the result's shape depends on values": """
        argwhere bincount masked_select nonzero nonzero_static unique unique_consecutive
    """,
    "the engine alone computes gradients": "backward grad grad_fn requires_grad_ retain_grad",
    "a hook would see all records' gradients": "register_hook register_post_accumulate_grad_hook",
    "it computes over a batch; use group_norm or layer_norm": """
        batch_norm batch_norm_elemt batch_norm_stats native_batch_norm
    """,
    "torch cannot run it for each record; the engine has rules for layers with parameters": """
        gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
    """,
    "torch cannot run it for each record; use leaky_relu": "rrelu rrelu_",
    "torch cannot run it for each record; use cat or stack": "column_stack",
    "torch cannot run it for each record; use torch.linalg.multi_dot": "chain_matmul",
    "torch cannot run it for each record; use detach": "detach_",
    "torch cannot run it for each record": "histogramdd",
    "torch cannot compute its gradient for each record; use the function that does not write in place": """
        hypot_ index_reduce_ ldexp_
    """,
    "sparse and quantized tensors are not for records": """
        coalesce dequantize quantize_per_channel quantize_per_tensor sparse_mask to_dense to_mkldnn
        to_sparse
    """,
    "rounding depends on the place in memory, and some matrices make that large": "eigh eigvalsh",
    "its results for singular matrices are rounding noise": "pca_lowrank svd_lowrank",
    "it writes into the table that all records share": "embedding_renorm_",
}
WITHHELD: dict[str, str] = {name: why for why, names in _REASONS.items() for name in names.split()}


def functions() -> dict[Callable[..., Any], str]:
    """Allowed functions, as a function mode sees them, and their names; an attribute is seen as its getter.

    A function that this torch does not have is left out.

    >>> functions()[torch.Tensor.add]
    'torch.Tensor.add'
    >>> torch.Tensor.item in functions()
    False
    """
    found: dict[Callable[..., Any], str] = {}
    for space, names in NAMES.items():
        for name in names.split():
            value = getattr(attrgetter(space.removeprefix("torch."))(torch) if "." in space else torch, name, None)
            if value is not None and not callable(value):
                value = value.__get__
            if value is not None:
                found.setdefault(value, f"{space}.{name}")
    return found
