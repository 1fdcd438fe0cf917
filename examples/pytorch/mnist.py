"""Digits with a small convolutional network, DP-SGD in a plain training loop; made-up pictures, so that it runs anywhere."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from noisewise.faces.pytorch import PrivacyEngine


class SampleConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 8, 2, padding=3)
        self.conv2 = nn.Conv2d(16, 32, 4, 2)
        self.fc1 = nn.Linear(32 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 1)
        x = x.view(-1, 32 * 4 * 4)
        return self.fc2(F.relu(self.fc1(x)))


def pictures(records, seed):
    """Ten classes: a bright square whose place is the class, on noise."""
    made = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (records,), generator=made)
    images = 0.3 * torch.randn(records, 1, 28, 28, generator=made)
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = divmod(label, 5)
        image[0, 4 + 12 * row : 12 + 12 * row, 1 + 5 * column : 6 + 5 * column] += 1.5
    return TensorDataset(images, labels)


def train(model, train_loader, optimizer, epoch, device, privacy_engine, delta):
    model.train()
    criterion = nn.CrossEntropyLoss()
    losses = []
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    epsilon = privacy_engine.get_epsilon(delta)
    print(f"Train epoch: {epoch}  (epsilon = {epsilon:.2f}, delta = {delta}); batches: {len(losses)}")


def test(model, test_loader, device):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            pred = model(data.to(device)).argmax(dim=1, keepdim=True)
            correct += pred.eq(target.to(device).view_as(pred)).sum().item()
    accuracy = correct / len(test_loader.dataset)
    print(f"Test set: accuracy {100 * accuracy:.2f} %")
    return accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--records", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=0.25)
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--max-per-sample-grad-norm", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    train_loader = DataLoader(pictures(args.records, seed=0), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(pictures(1000, seed=1), batch_size=500)
    model = SampleConvNet().to(args.device)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0)
    privacy_engine = PrivacyEngine()
    model, optimizer, train_loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=train_loader,
        noise_multiplier=args.sigma,
        max_grad_norm=args.max_per_sample_grad_norm,
    )
    for epoch in range(1, args.epochs + 1):
        train(model, train_loader, optimizer, epoch, args.device, privacy_engine, args.delta)
    test(model, test_loader, args.device)


if __name__ == "__main__":
    main()
