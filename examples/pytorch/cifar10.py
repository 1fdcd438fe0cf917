"""Colour pictures with a deeper network: layers that mix records replaced, large batches in small pieces, a target epsilon."""

import argparse

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from noisewise.faces.pytorch import BatchMemoryManager, ModuleValidator, PrivacyEngine


def block(channels_in, channels_out):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=1, padding=1),
        nn.BatchNorm2d(channels_out),  # ModuleValidator.fix makes a GroupNorm of it
        nn.ReLU(),
        nn.AvgPool2d(kernel_size=2, stride=2),
    )


def convnet(num_classes):
    return nn.Sequential(
        block(3, 16),
        block(16, 32),
        block(32, 48),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(start_dim=1, end_dim=-1),
        nn.Linear(48, num_classes, bias=True),
    )


def pictures(records, seed):
    """Ten classes: colours of the two halves of a picture, on noise."""
    made = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (records,), generator=made)
    images = 0.5 * torch.randn(records, 3, 32, 32, generator=made)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[label % 3, :16] += 1.0
        image[label // 4, 16:] += 1.0
    return TensorDataset(images, labels)


def train(args, model, train_loader, optimizer, privacy_engine, epoch):
    model.train()
    criterion = nn.CrossEntropyLoss()
    losses, right, seen = [], 0, 0
    with BatchMemoryManager(
        data_loader=train_loader, max_physical_batch_size=args.max_physical_batch_size, optimizer=optimizer
    ) as pieces:
        for images, target in pieces:
            images, target = images.to(args.device), target.to(args.device)
            optimizer.zero_grad()
            output = model(images)
            loss = criterion(output, target)
            right += (output.detach().argmax(1) == target).sum().item()
            seen += len(target)
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
    epsilon = privacy_engine.get_epsilon(delta=args.delta)
    print(
        f"Train epoch: {epoch}  (epsilon = {epsilon:.2f}, delta = {args.delta}); pieces: {len(losses)}, records: {seen}"
    )


def test(args, model, test_loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, target in test_loader:
            right += (model(images.to(args.device)).argmax(1) == target.to(args.device)).sum().item()
    print(f"Test set: accuracy {100 * right / len(test_loader.dataset):.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--max-physical-batch-size", type=int, default=64)
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--max-per-sample-grad-norm", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    train_loader = DataLoader(pictures(args.records, seed=0), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(pictures(1000, seed=1), batch_size=250)
    model = convnet(num_classes=10)
    if ModuleValidator.validate(model):
        model = ModuleValidator.fix(model)
    model = model.to(args.device)
    optimizer = optim.RMSprop(model.parameters(), lr=args.lr)
    privacy_engine = PrivacyEngine()
    model, optimizer, train_loader = privacy_engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=train_loader,
        epochs=args.epochs,
        target_epsilon=args.epsilon,
        target_delta=args.delta,
        max_grad_norm=args.max_per_sample_grad_norm,
    )
    print(f"noise multiplier {optimizer.noise_multiplier:.3f}, clip {optimizer.max_grad_norm}")
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    for epoch in range(1, args.epochs + 1):
        train(args, model, train_loader, optimizer, privacy_engine, epoch)
        scheduler.step()
    test(args, model, test_loader)


if __name__ == "__main__":
    main()
