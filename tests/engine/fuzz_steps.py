"""Steps and losses of random modules, one a line; :mod:`fuzz_programs` puts them together."""

from __future__ import annotations

# A step: "what is made in __init__ | what forward does to x", each a line; "~" draws at random, "-> kind" changes what x is.
# {n} is the step's number, {L} the last dimension of x; row (B, D), seq (B, T, D), pic (B, C, H, H); k is ids (B, T) below V.
ANY = """
 | x = torch.tanh(x)
 | x = F.relu(x)
 | x = F.gelu(x) + x.sigmoid()
 | x = x / (1 + x.abs())
 | x = x.clamp(-1, 1) * 2 - 1
 | x = x.softmax(-1)
 | x = x.sort(-1).values
 | x = x.cumsum(-1).flip(-1)
 | x = x - x.mean(-1, keepdim=True)
 | x = x / x.std(-1, keepdim=True)
 | x = F.normalize(x, dim=-1)
 | x = torch.where(x > 0, x, 0.1 * x)
 | x = x * (x > 0)
 | x = x.masked_fill(x > 1, 0.0)
 | x = x + x.topk(2, -1).values.sum(-1, keepdim=True)
 | x = x.logsumexp(-1, keepdim=True) - x
 | x = x.detach() * x
 | x = torch.nan_to_num(x)
 | x = x.gather(-1, x.argsort(-1))
 | x = x.take_along_dim(x.argmax(-1, keepdim=True), -1) + x
 | x = x.sqrt()
 | x = x.exp().log1p()
 | x = x.float().to(x.dtype)
 | x = x * like(k.to(x.dtype).mean(1), x)
 | x = x + x.gather(-1, like(k[:, 0], x).expand(*x.shape[:-1], 1))
 | x = x + x.take_along_dim(like(k[:, -1], x).expand(*x.shape[:-1], 1), -1)
 | x = x + like(F.one_hot(k, {V}).to(x.dtype).sum((1, 2)), x)
 | x = x + like(x.new_zeros(len(x), {V}).scatter_add(1, k, k.to(x.dtype))[:, 0], x)
 | x = x + like(x.new_zeros(len(x), {V}).scatter(1, k, 1.0).cumsum(1)[:, -1], x)
self.p{n} = made({L}) | x = x + self.p{n}
self.p{n} = made({L}) | x = x * self.p{n}.exp()
self.p{n} = made({L}) | x = torch.where(x > 0, x * self.p{n}, x)
self.p{n} = made({L}) | x = x + self.p{n}.expand_as(x)
self.p{n} = made({L}) | x = torch.stack([x, x * self.p{n}]).sum(0)
self.p{n} = made({L}) | x = torch.addcmul(x, x, self.p{n})
self.p{n} = made({L}) | x = torch.maximum(x, self.p{n})
self.p{n} = made({L}) | x = x * self.p{n}[:1] + like(self.p{n}[k[:, 0] % {L}], x)
self.p{n} = made({L}) | x = x + like(self.p{n}[k].mean(1), x)
self.p{n} = made({L}) | x = x + like(self.p{n}.take(k).mean(1), x)
self.p{n} = made({L}) | x = x + self.p{n}.sort().values.unsqueeze(0)
self.p{n} = made(1) | x = x * self.p{n}
self.w{n} = made({L}, {L}) | x = x @ self.w{n}
self.w{n} = made({L}, {L}) | x = x @ self.w{n}.T + x @ self.w{n}
self.w{n} = made({L}, {L}) | x = torch.einsum('...i,ij->...j', x, self.w{n})
self.w{n} = made({L}, {L}) | x = (self.w{n} @ x.unsqueeze(-1)).squeeze(-1)
self.w{n} = made({L}, {L}) | x = x @ (self.w{n} + self.w{n}.T)
self.w{n} = made({L}, {L}) | x = F.linear(x, torch.cat([self.w{n}[1:], self.w{n}[:1]]), self.w{n}[0])
self.w{n} = made({L}, {L}) | x = x @ self.w{n}.softmax(0).transpose(0, 1)
self.w{n} = made({L}, {L}) | x = F.linear(x, *reversed((self.w{n}[:, 0], self.w{n}.t())))
self.w{n} = made({L}, {L}) | x = x @ torch.linalg.inv(self.w{n} + 9 * torch.eye({L}))
self.w{n} = made({L}, 2 * {L}) | a, b = self.w{n}.chunk(2, 1); x = x @ a + F.linear(x, b)
self.w{n} = made(2 * {L}, {L}) | a, b = self.w{n}.split({L}); x = F.linear(F.linear(x, a), b, a[0])
self.t{n} = made({V}, {L}) | x = x + like(F.embedding(k, self.t{n}, padding_idx=0).mean((1, 2)), x)
self.t{n} = made({V}, {L}) | x = x + like((F.one_hot(k, {V}).to(x.dtype) @ self.t{n}).mean((1, 2)), x)
self.t{n} = made({V}, {L}) | x = x + like(self.t{n}.gather(0, k[:, :1].expand(-1, {L})).sum(1), x)
self.t{n} = made({V}, {L}) | x = x + (x @ self.t{n}.T).softmax(-1) @ self.t{n}
self.l{n} = nn.Linear({L}, {L}) | x = self.l{n}(x)
self.l{n} = nn.Linear({L}, {L}) | x = self.l{n}(torch.tanh(self.l{n}(x)))
self.l{n} = nn.Linear({L}, {L}, bias=False) | x = self.l{n}(x) @ self.l{n}.weight
self.l{n} = weight_norm(nn.Linear({L}, {L})) | x = self.l{n}(x)
self.l{n} = nn.Sequential(nn.Linear({L}, 2), nn.ReLU(inplace=True), nn.Linear(2, {L})) | x = x + self.l{n}(x)
self.l{n} = nn.LayerNorm({L}) | x = self.l{n}(x)
self.l{n} = nn.RMSNorm({L}) | x = self.l{n}(x)
self.l{n} = nn.PReLU() | x = self.l{n}(x)
self.l{n} = nn.Bilinear({L}, {L}, {L}) | x = self.l{n}(x, x.flip(-1))
self.l{n} = nn.Embedding({V}, {L}) | x = x + like(self.l{n}(k).mean((1, 2)), x)
self.l{n} = nn.EmbeddingBag({V}, {L}, mode=pick('sum', 'mean', 'max')) | x = x + like(self.l{n}(k).sum(1), x)
 | x = x.clone().relu_()
 | x = x * 1; x.add_(1).mul_(0.5)
 | x = x * 1; x[..., 0] = 0
 | x = x * 1; x[..., 0] = x[..., 1] * 2
 | x = x * 1; x[x > 1] = 1.0
 | x.add_(1)
 | z = x.new_zeros(x.shape); z[..., 0] = x[..., 0]; x = z + x
 | z = torch.zeros_like(x); z.copy_(x * 2); x = z
self.p{n} = made({L}) | x = x * 1; x.mul_(self.p{n})
self.p{n} = made({L}) | x = x * 1; x[..., 0] = self.p{n}[0]
~ | x = F.dropout(x, 0.3)
~self.l{n} = nn.Dropout(0.5) | x = self.l{n}(x)
~ | x = x * torch.rand_like(x)
~ | x = x + torch.randn(x.shape)
~ | x = x * (torch.rand_like(x) > 0.3)
~ | x = x * torch.rand({L})
~self.p{n} = made({L}) | x = x * F.dropout(self.p{n}, 0.5)
~self.p{n} = made({L}) | x = x + self.p{n} * torch.rand_like(self.p{n})
"""
ROWS = """
 | x = x + x.gather(1, k).mean(1, keepdim=True)
 | x = x.view(len(x), -1).reshape(-1, {D})
self.l{n} = nn.PReLU({D}) | x = self.l{n}(x)
self.l{n} = nn.GroupNorm(1, {D}) | x = self.l{n}(x)
self.l{n} = nn.GRUCell({D}, {D}) | x = self.l{n}(x)
self.l{n} = nn.LSTMCell({D}, {D}); self.p{n} = made({D}) | x = self.l{n}(x, (x, self.p{n}.expand_as(x)))[1]
self.l{n} = nn.RNNCell({D}, {D}) | x = self.l{n}(x, x * 2)
self.p{n} = made({D}) | x = torch.cat([x, self.p{n}.expand(len(x), -1)], 1)[:, 1:{D} + 1]
self.w{n} = made({D}, {D}) | x = torch.bmm(x.unsqueeze(1), self.w{n}.expand(len(x), -1, -1)).squeeze(1)
self.w{n} = made({D}, {D}) | x = torch.addmm(self.w{n}[0], x, self.w{n})
self.t{n} = made({V}, {D}) | x = x + self.t{n}[k[:, 0]]
self.t{n} = made({V}, {D}) | x = x * self.t{n}[k].sum(1)
 | x = x.unsqueeze(1).expand(-1, {T}, -1) -> seq
self.l{n} = nn.Embedding({V}, {D}, padding_idx=0) | x = x.unsqueeze(1) + self.l{n}(k) -> seq
self.l{n} = nn.Linear({D}, {C} * {H} * {H}) | x = self.l{n}(x).view(len(x), {C}, {H}, {H}) -> pic
"""
SEQUENCES = """
 | x = x.transpose(0, 1).contiguous().transpose(0, 1)
 | x = x.reshape(-1, {D}).tanh().view(-1, {T}, {D})
 | x = F.scaled_dot_product_attention(x, x, x, is_causal=True)
 | x = x * (k > 0).unsqueeze(-1)
 | x = (x @ x.mT).masked_fill((k == 0).unsqueeze(1), -1e9).softmax(-1) @ x
 | x = (x @ x.mT).masked_fill((k == 0).unsqueeze(1), float('-inf')).softmax(-1) @ x
 | x = x[torch.arange(len(x)).unsqueeze(1), k % {T}]
 | x = x.scatter_add(1, (k % {T}).unsqueeze(-1).expand_as(x), x)
self.p{n} = made(9, {D}) | x = x + self.p{n}[:x.shape[1]]
self.l{n} = nn.Linear({D}, {D}) | x = self.l{n}(x.reshape(-1, {D})).view(len(x), {T}, {D})
self.l{n} = nn.Linear({D}, {D}) | x = self.l{n}(x.transpose(0, 1)).permute(1, 0, 2)
self.l{n} = pick(nn.GRU, nn.LSTM, nn.RNN)({D}, {D}, batch_first=True, bias=pick(True, False)) | x = self.l{n}(x)[0]
self.l{n} = pick(nn.GRU, nn.LSTM, nn.RNN)({D}, {D}, pick(1, 2)) | x = self.l{n}(x.transpose(0, 1))[0].transpose(0, 1)
self.l{n} = nn.LSTM({D}, {D}, bidirectional=True, batch_first=True) | x = self.l{n}(x)[0][..., 1:{D} + 1]
self.l{n} = nn.MultiheadAttention({D}, 1, batch_first=True) | x = self.l{n}(x, x, x, need_weights=pick(True, False))[0]
self.l{n} = nn.MultiheadAttention({D}, 1, batch_first=True) | x = self.l{n}(x, x, x, key_padding_mask=k == 0)[0]
self.l{n} = nn.TransformerEncoderLayer({D}, 1, 4, dropout=0.0, batch_first=True) | x = self.l{n}(x)
~self.l{n} = nn.TransformerEncoderLayer({D}, 1, 4, dropout=0.2, batch_first=True) | x = self.l{n}(x)
self.l{n} = nn.Conv1d({D}, {D}, 3, padding=1, groups=pick(1, {D})) | x = self.l{n}(x.mT).mT
self.l{n} = nn.ConvTranspose1d({D}, {D}, 3, padding=1) | x = self.l{n}(x.transpose(1, 2)).transpose(1, 2)
self.l{n} = nn.InstanceNorm1d({D}, affine=True) | x = self.l{n}(x.transpose(1, 2)).transpose(1, 2)
self.l{n} = nn.GroupNorm(1, {T}) | x = self.l{n}(x)
self.l{n} = nn.Embedding({V}, {D}, scale_grad_by_freq=True) | x = x + self.l{n}(k)
self.l{n} = nn.GRUCell({D}, {D}) | x = torch.stack([self.l{n}(step) for step in x.unbind(1)], 1)
self.w{n} = made({D}, {D}) | x = torch.einsum('btd,de->bte', x, self.w{n})
self.w{n} = made({T}, {T}) | x = self.w{n} @ x
 | x = x.mean(1) -> row
 | x = x[:, -1] -> row
 | x = x.max(1).values -> row
 | x = (x * (k > 0).unsqueeze(-1)).sum(1) / (k > 0).sum(1, keepdim=True) -> row
 | x = x.gather(1, (k[:, :1] % {T}).unsqueeze(-1).expand(-1, 1, {D})).squeeze(1) -> row
self.l{n} = nn.Linear({T} * {D}, {D}) | x = self.l{n}(x.flatten(1)) -> row
"""
PICTURES = """
 | x = F.max_pool2d(x, 2, 1, 1)[:, :, :{H}, :{H}]
 | x = F.pad(x, (1, 0, 1, 0))[:, :, :{H}, 1:]
 | x = F.unfold(x, 1).view(x.shape)
self.l{n} = nn.Conv2d({C}, {C}, 3, padding=1, groups=pick(1, {C})) | x = self.l{n}(x)
self.l{n} = nn.Conv2d({C}, {C}, pick(1, 2), pick(1, 2), pick(0, 1)) | x = F.adaptive_avg_pool2d(self.l{n}(x), {H})
self.l{n} = nn.Conv2d({C}, 2 * {C}, 3, 2, padding=1, dilation=1, groups={C}) | x = F.interpolate(self.l{n}(x)[:, :{C}], {H})
self.l{n} = nn.Conv2d({C}, {C}, 3, padding=2, dilation=2, padding_mode='zeros', bias=False) | x = self.l{n}(x)
self.l{n} = nn.Conv2d({C}, {C}, 3, padding='same', padding_mode=pick('zeros', 'circular')) | x = self.l{n}(x).relu_()
self.l{n} = nn.ConvTranspose2d({C}, {C}, 2, pick(1, 2)) | x = F.adaptive_max_pool2d(self.l{n}(x), {H})
self.l{n} = nn.GroupNorm(pick(1, {C}), {C}) | x = self.l{n}(x)
self.l{n} = nn.InstanceNorm2d({C}, affine=pick(True, False)) | x = self.l{n}(x)
self.l{n} = nn.LayerNorm([{C}, {H}, {H}]) | x = self.l{n}(x)
self.l{n} = nn.PReLU({C}) | x = self.l{n}(x)
self.l{n} = weight_norm(nn.Conv2d({C}, {C}, 1)) | x = self.l{n}(x)
self.w{n} = made({C}, {C}, 1, 1) | x = F.conv2d(x, self.w{n}) + F.conv2d(x, self.w{n}.transpose(0, 1))
~ | x = F.dropout2d(x, 0.3)
self.l{n} = nn.Linear({C} * {H} * {H}, {D}) | x = self.l{n}(x.flatten(1)) -> row
self.l{n} = nn.Linear({C}, {D}) | x = self.l{n}(x.mean((2, 3))) -> row
self.l{n} = nn.Linear({H} * {H}, {D}) | x = self.l{n}(x.flatten(2)).mean(1, keepdim=True).expand(-1, {T}, -1) -> seq
"""
ODD = """
~ | x = x * torch.bernoulli(torch.full_like(x, 0.5))
self.p{n} = made({L}) | x = x + self.p{n}[k].mean()
self.t{n} = made({V}, {L}) | x = x + self.t{n}.index_select(0, k[0]).mean(0)
self.t{n} = made({V}, {L}) | x = x + self.t{n}[k[:, 0]].mean(0)
 | x = x + x.index_select(-1, k[0]).sum(-1, keepdim=True)
 | x = x + x[..., k[0, 0] % {L}].unsqueeze(-1)
 | x = x * k.to(x.dtype).mean()
 | peek(x); x = x * (1 + len(KEPT))
self.p{n} = made({L}) | q = self.p{n} * 1; q.register_hook(turning) if q.requires_grad else None; x = x * q
self.p{n} = made({L}) | self.p{n}.register_hook(turning) if torch.is_grad_enabled() else None; x = x * self.p{n}
 | x = x - x.mean(0)
 | x = x / x.abs().max()
 | x = x.softmax(0) * x
 | x = x.sort(0).values
 | x = x + x.cumsum(0)
 | x = x + x.roll(1, 0)
 | x = x.max(0).values.expand_as(x)
 | x = x.transpose(0, 1).reshape(x.shape)
 | x = x.reshape(x.shape[1], -1).softmax(0).reshape(x.shape)
 | x = x.reshape(-1, 1).sort(0).values.reshape(x.shape)
 | x = F.layer_norm(x, x.shape)
 | x = x + x.index_fill(0, k[0] * 0, 1.0)
 | x = x if x.max() < 50 else x * 100
 | x = x * 2 if bool((k >= 0).all()) else x
 | x = x * float(x.sum())
 | x = x + x[x > 0].sum()
 | x = x + x.masked_select(x > 0).mean()
 | x = x + len(x.nonzero())
 | x = x + torch.unique(k).sum()
 | x = x * 2 if torch.equal(x, x * 1) else x
 | x = x * 2 if torch.allclose(x, x * 1) else x
 | x = x * hash(str(x)) % 7
 | x = x * len(repr(k))
 | x = x * (2 if len(x) == 1 else 1)
 | x = tried(lambda: x + x[..., k[0, 0]].unsqueeze(-1), x)
 | x = tried(lambda: x + like(x.gather(1, k.view(*k.shape, *[1] * (x.dim() - 2))).mean(), x), x)
 | x = tried(lambda: x + F.one_hot(k, {V}).to(x.dtype).sum(), x)
 | x = tried(lambda: x + F.binary_cross_entropy(x, x), x)
 | x = tried(lambda: x + torch.linalg.inv(x.flatten()[:4].view(2, 2)).sum(), x)
 | x = tried(lambda: x + torch.linalg.cholesky(x.flatten()[:4].view(2, 2)).sum(), x)
 | x = tried(lambda: x + torch.linalg.eigh(x.flatten()[:4].view(2, 2))[0].sum(), x)
 | x = tried(lambda: x + torch.linalg.svd(x.flatten()[:4].view(2, 2))[1].sum(), x)
 | x = tried(lambda: x + torch.linalg.solve(x.flatten()[:4].view(2, 2), x.flatten()[:2]).sum(), x)
 | x = tried(lambda: x if x.max() < 50 else x * 100, x * 2)
 | x = tried(lambda: x * torch.bernoulli(x), x)
 | x = tried(lambda: x + torch.bincount(k.flatten()).sum(), x)
 | x = tried(lambda: x + x.new_zeros(int(k.max())).sum(), x)
 | x = tried(lambda: x + torch.searchsorted(torch.arange(3.0).to(x), x).to(x.dtype), x)
 | x = tried(lambda: x + torch.bucketize(x, torch.arange(3.0).to(x)).to(x.dtype), x)
 | x = tried(lambda: x + torch.histc(x, 3).sum(), x)
 | x = tried(lambda: x + x.repeat_interleave(k[0], 0).sum(), x)
 | x = tried(lambda: x + torch.multinomial(x.flatten(), 1).sum(), x)
 | x = tried(lambda: x + x.quantile(0.5), x)
 | x = tried(lambda: x.set_(x * 2), x)
 | x = tried(lambda: x.resize_(x.shape), x)
 | self.last = x
 | self.last = x.detach().sum(); x = x + self.last
 | x = x + getattr(self, 'last', 0); self.last = x.detach().mean()
 | KEPT.append(x.sum())
 | KEPT.append(x.detach().sum()); x = x + KEPT[0]
 | x = tried(lambda: x + KEPT[0], x); KEPT.append(x.detach().sum())
 | x = x + KEPT[-1].to(x) if KEPT else x; KEPT[:] = [torch.ones(())]
 | KEPT.append(1); x = x * (1 + len(KEPT) % 2)
self.box = Box() | x = tried(lambda: x + self.box.kept, x); self.box.kept = x.mean()
self.seen = {{}} | self.seen[len(self.seen)] = x.detach()
self.n = 0 | self.n += 1; x = x * (1 + self.n % 2)
self.register_buffer('b{n}', torch.zeros(())) | self.b{n} += x.mean().detach()
self.register_buffer('b{n}', torch.zeros(())) | self.b{n} = x.mean().detach(); x = x + self.b{n}
self.register_buffer('b{n}', torch.ones({L})) | x = x * self.b{n}
self.register_buffer('b{n}', torch.zeros({L})) | tried(lambda: self.b{n}.copy_(x.flatten()[:{L}]), x); x = x + self.b{n}
self.p{n} = made({L}) | self.p{n}.data.mul_(0.99); x = x * self.p{n}
self.p{n} = made({L}) | tried(lambda: self.p{n}.data.add_(x.mean()), x); x = x * self.p{n}
self.p{n} = made({L}) | tried(lambda: setattr(self.p{n}, 'data', x.flatten()[:{L}]), x); x = x * self.p{n}
self.p{n} = made({L}) | self.p{n}.grad = None; x = x + torch.autograd.grad((x * self.p{n}).sum(), self.p{n})[0]
self.p{n} = made({L}) | x = x * self.p{n}; x.register_hook(lambda g: g * 100) if x.requires_grad else None
self.p{n} = made({L}) | x = Doubled.apply(x * self.p{n})
self.p{n} = made({L}) | x = checkpoint(lambda a: a * self.p{n}, x, use_reentrant=False)
self.p{n} = made({L}) | x = torch.func.vmap(lambda a: a * 2)(x) * self.p{n}
self.l{n} = nn.BatchNorm1d({L}) | x = self.l{n}(x.reshape(-1, {L})).view(x.shape)
self.l{n} = nn.BatchNorm1d({L}).eval(); self.l{n}.train = lambda mode: None | x = self.l{n}(x.reshape(-1, {L})).view(x.shape)
self.l{n} = spectral_norm(nn.Linear({L}, {L})) | x = self.l{n}(x)
self.l{n} = nn.Embedding({V}, {L}, max_norm=1.0) | x = x + self.l{n}(k).sum()
self.l{n} = nn.LSTM({D}, {D}) | x = x + self.l{n}(pack_padded_sequence(x, [x.shape[1]] * len(x), True))[1][0].sum()
~ | x = x * torch.rand((), generator=torch.Generator().manual_seed(1))
~ | x = x * random.random()
~ | x = x[:, torch.randperm(x.shape[1])]
"""
NOTED = """
torch.bernoulli(x.sigmoid())
torch.multinomial(x.flatten().sigmoid(), 1)
torch.histc(x, 3)
torch.histogram(x.flatten(), 3)[0]
torch.linalg.inv(square(x))
torch.linalg.cholesky(square(x) @ square(x).T + torch.eye(2))
torch.linalg.eigvalsh(square(x))
torch.linalg.svdvals(square(x))
torch.svd(square(x))[1]
torch.logdet(square(x))
torch.pinverse(square(x))
torch.linalg.lstsq(square(x), flat(x)[:2, None])[0]
torch.normal(x, x.sigmoid())
torch.normal(x, x.exp())
torch.poisson(x.exp())
x.quantile(0.5)
x.kthvalue(1)[0]
k // (k + 5)
k % (k + 1)
torch.fmod(k, k + 100)
torch.remainder(5, k + 5)
k.gcd(k + 5)
torch.matrix_power(square(x), -1)
torch.linalg.eigvals(square(x)).real
torch.lu(square(x))[0]
torch.linalg.qr(square(x))[1]
torch.triangular_solve(flat(x)[:2, None], square(x))[0]
torch.cholesky_inverse(square(x))
torch.repeat_interleave(flat(x)[:{T}], flat(k) + 1, output_size=4)
flat(x).put(k, k.to(x.dtype))
flat(x).index_put((k,), k.to(x.dtype))
flat(x).index_reduce(0, flat(k), flat(k).to(x.dtype), 'mean')
flat(x).index_copy(0, flat(k), flat(k).to(x.dtype))
flat(x).index_add(0, flat(k), flat(k).to(x.dtype))
torch.isin(k, 2)
x.sum().gather(0, k[0, 0].clamp(max=0))
x.sum().index_select(0, k[0, :1].clamp(max=0))
x.sum().scatter(0, k[0, 0].clamp(max=0), 1.0)
flat(x).gather(numpy.int64(0), flat(k))
F.cross_entropy(flat(x)[None, :3], k[:1, 0], weight=flat(x)[:3].sigmoid())
flat(x).scatter_reduce(0, flat(k), flat(k).to(x.dtype), 'amax')
F.multi_margin_loss(flat(x)[None, :3], k[:1, 0])
F.nll_loss(flat(x)[None, :3], k[:1, 0])
F.multilabel_margin_loss(flat(x)[None, :{T}], k[:1])
F.cross_entropy(flat(x)[None, :3], k[:1, 0])
F.ctc_loss(flat(x)[:3].view(1, 1, 3), k[:, :1], [1], [1])
F.grid_sample(square(x)[None, None], flat(x)[:2].view(1, 1, 1, 2))
F.gumbel_softmax(x)
torch.cdist(square(x), square(x))
F.embedding(k, flat(x)[:3, None])
F.embedding_bag(k, flat(x)[:3, None])
F.one_hot(k, {V})
flat(x)[k]
torch.ldexp(x, k.sum())
torch.polygamma(1, x)
torch.bitwise_left_shift(k, k)
torch.cumulative_trapezoid(x)
torch.searchsorted(flat(x).sort()[0], flat(x))
F.max_unpool1d(flat(x)[None, None, :{T}], k[:1, None], 1, output_size=(1, 1, 3))
F.binary_cross_entropy(x.sigmoid(), x.sigmoid())
F.gaussian_nll_loss(x, x, x.exp())
F.triplet_margin_loss(x, x, x)
torch.gather(flat(x), 0, flat(k))
F.fractional_max_pool2d(square(x)[None, None], 1, 2)
torch.randint(3, x.shape)
torch.linalg.matrix_norm(square(x), 'nuc')
torch.linalg.cond(square(x))
torch.linalg.matrix_rank(square(x))
torch.linalg.ldl_factor(square(x))[0]
torch.linalg.lu_factor(square(x))[0]
torch.renorm(square(x), 2, 0, 1)
x.new_zeros(3).masked_scatter(flat(x)[:3] > 5, flat(x)[:1])
torch.combinations(k[0])
x.take(k)
flat(x).take_along_dim(flat(k), 0)
x.clone().exponential_()
x.clone().log_normal_()
x.clone().cauchy_()
x.clone().geometric_(0.5)
x.clone().bernoulli_(x.sigmoid())
square(x).clone().fill_diagonal_(0)
"""
LABELS = """
nn.CrossEntropyLoss()
nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 0.5]), reduction='sum')
nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 0.5]))
nn.CrossEntropyLoss(ignore_index=0, reduction='sum')
nn.CrossEntropyLoss(label_smoothing=0.1)
nn.MultiMarginLoss()
lambda out, y: F.nll_loss(out.log_softmax(1), y)
lambda out, y: F.cross_entropy(out, y, reduction='none').sum()
lambda out, y: (F.cross_entropy(out, y, reduction='none') * like((y > 0) + 0.5, y)).mean()
lambda out, y: -out.log_softmax(1).gather(1, y.unsqueeze(1)).mean()
lambda out, y: -out.log_softmax(1)[torch.arange(len(y)), y].mean()
lambda out, y: (out * F.one_hot(y, 3)).square().mean()
"""
ODD_LABELS = """
lambda out, y: F.cross_entropy(out, y, weight=torch.tensor([1.0, 3.0, 0.5]))
lambda out, y: (F.cross_entropy(out, y, reduction='none') * y).sum() / y.sum()
lambda out, y: F.cross_entropy(out @ out.T, torch.arange(len(out))) + out.mean()
lambda out, y: F.cross_entropy(out, y) if y.max() < 9 else out.sum() * 100
lambda out, y: F.cross_entropy(out, y) * noted(lambda: F.multi_margin_loss(out, y), out[0, 0]).detach()
"""
NUMBERS = """
nn.MSELoss()
nn.MSELoss(reduction='sum')
nn.L1Loss()
nn.HuberLoss()
nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 0.5]))
nn.KLDivLoss(reduction='sum')
nn.CosineSimilarity()
lambda out, y: F.binary_cross_entropy(out.sigmoid(), y.sigmoid())
lambda out, y: (out - y).square().sum(1).mean()
lambda out, y: F.cosine_embedding_loss(out, y, torch.ones(len(out)))
"""
ODD_NUMBERS = """
lambda out, y: F.binary_cross_entropy(out, y.sigmoid())
lambda out, y: (out - y).square().sum() / y.abs().sum()
lambda out, y: ((out - y) * (y > 0)).abs().sum() / (y > 0).sum()
lambda out, y: (out.unsqueeze(0) - out.unsqueeze(1)).square().mean()
lambda out, y: (out - y.mean(0)).square().mean()
lambda out, y: out.norm() + y.norm()
"""
