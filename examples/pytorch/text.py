"""Texts in two classes: embeddings, their mean, and a linear layer, as for film reviews; made-up words."""

import argparse

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

from noisewise.faces.pytorch import PrivacyEngine

LENGTH = 64  # every text is cut or padded to this, by itself: a batch padded to its longest text would mix records
PAD = 0


class SampleNet(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, 16)
        self.fc1 = nn.Linear(16, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x):
        x = self.emb(x).mean(dim=1)
        return self.fc2(torch.relu(self.fc1(x)))


class Reviews(Dataset):
    """Texts of different lengths: good ones prefer the first half of the words."""

    def __init__(self, records, vocab_size, seed):
        made = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(2, (records,), generator=made).tolist()
        half = vocab_size // 2
        self.texts = []
        for label in self.labels:
            length = int(torch.randint(20, 2 * LENGTH, (1,), generator=made))
            prefers = torch.rand(length, generator=made) < 0.75
            words = torch.randint(1, half, (length,), generator=made)
            self.texts.append(words + half * (prefers == bool(label)).long())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.texts[index], self.labels[index]


def padded_collate(batch):
    rows = [nn.functional.pad(text[:LENGTH], (0, max(0, LENGTH - len(text))), value=PAD) for text, _ in batch]
    return torch.stack(rows), torch.tensor([label for _, label in batch])


def train(model, train_loader, optimizer, privacy_engine, epoch, delta):
    criterion = nn.CrossEntropyLoss()
    model.train()
    for data, label in train_loader:
        optimizer.zero_grad()
        predictions = model(data).squeeze(1)
        loss = criterion(predictions, label)
        loss.backward()
        optimizer.step()
    epsilon = privacy_engine.get_epsilon(delta)
    print(f"Train epoch: {epoch}  (epsilon = {epsilon:.2f}, delta = {delta})")


def evaluate(model, test_loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(data).argmax(1) == label).sum().item() for data, label in test_loader)
    print(f"Test set: accuracy {100 * right / len(test_loader.dataset):.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--vocab-size", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--sigma", type=float, default=0.6)
    parser.add_argument("--max-per-sample-grad-norm", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()

    loaders = [
        DataLoader(
            Reviews(records, args.vocab_size, seed),
            batch_size=args.batch_size,
            shuffle=seed == 0,
            collate_fn=padded_collate,
            num_workers=args.workers,
        )
        for seed, records in enumerate((args.records, 500))
    ]
    train_loader, test_loader = loaders
    model = SampleNet(args.vocab_size)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    privacy_engine = PrivacyEngine()
    model, optimizer, train_loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=train_loader,
        noise_multiplier=args.sigma,
        max_grad_norm=args.max_per_sample_grad_norm,
        poisson_sampling=True,
    )
    for epoch in range(1, args.epochs + 1):
        train(model, train_loader, optimizer, privacy_engine, epoch, args.delta)
    evaluate(model, test_loader)


if __name__ == "__main__":
    main()
