"""Which language a name is from, letter by letter, with an LSTM; made-up names. Saves and restores a checkpoint."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from noisewise.faces.pytorch import DPLSTM, PrivacyEngine

LETTERS, LANGUAGES, LENGTH = 26, 4, 10


class CharNNClassifier(nn.Module):
    def __init__(self, embedding_size, hidden_size, output_size, num_lstm_layers=1):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS + 1, embedding_size)
        self.lstm = DPLSTM(embedding_size, hidden_size, num_layers=num_lstm_layers, batch_first=True)
        self.out_layer = nn.Linear(hidden_size, output_size)

    def forward(self, x, hidden=None):
        x = self.embedding(x)
        x, _ = self.lstm(x, hidden)
        return self.out_layer(x[:, -1, :])


def names(records, seed):
    """Languages prefer letters of their own."""
    made = torch.Generator().manual_seed(seed)
    labels = torch.randint(LANGUAGES, (records,), generator=made)
    letters = torch.randint(LETTERS, (records, LENGTH), generator=made)
    own = labels[:, None] * 6 + torch.randint(6, (records, LENGTH), generator=made)
    return TensorDataset(1 + torch.where(torch.rand(records, LENGTH, generator=made) < 0.7, own, letters), labels)


def train(model, criterion, optimizer, train_loader, device):
    model.train()
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = criterion(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test(model, test_loader, device):
    model.eval()
    with torch.no_grad():
        right = [(model(x.to(device)).argmax(dim=1) == y.to(device)).float() for x, y in test_loader]
    return torch.cat(right).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--hidden-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2.0)
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--max-per-sample-grad-norm", type=float, default=1.5)
    parser.add_argument("--delta", type=float, default=8e-5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    train_loader = DataLoader(names(args.records, 0), batch_size=args.batch_size, shuffle=True, drop_last=False)
    test_loader = DataLoader(names(500, 1), batch_size=500)
    model = CharNNClassifier(16, args.hidden_size, LANGUAGES).to(args.device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=args.learning_rate)
    privacy_engine = PrivacyEngine()
    model, optimizer, train_loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=train_loader,
        max_grad_norm=args.max_per_sample_grad_norm,
        noise_multiplier=args.sigma,
    )
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, args.epochs + 1):
            train(model, criterion, optimizer, train_loader, args.device)
            accuracy = test(model, test_loader, args.device)
            epsilon = privacy_engine.get_epsilon(delta=args.delta)
            print(f"Epoch {epoch}: accuracy {100 * accuracy:.1f} % (epsilon = {epsilon:.2f}, delta = {args.delta})")
            path = Path(folder) / f"epoch-{epoch}.pt"
            privacy_engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
        privacy_engine.load_checkpoint(path=path, module=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
