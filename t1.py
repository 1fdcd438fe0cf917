import torch, warnings, time
from torch import nn
from torch.utils.data import TensorDataset, DataLoader
from noisewise.pytorch.privacy_engine import PrivacyEngine
torch.manual_seed(0)
X=torch.randn(400,10); y=(X[:,0]>0).long()
def setup(**k):
    m=nn.Sequential(nn.Linear(10,16),nn.ReLU(),nn.Linear(16,2))
    o=torch.optim.SGD(m.parameters(),lr=.5)
    e=PrivacyEngine()
    args=dict(module=m,optimizer=o,data_loader=DataLoader(TensorDataset(X,y),batch_size=32,shuffle=True),max_grad_norm=1.0)
    args.update(k)
    t=time.time()
    r=(e.make_private_with_epsilon if 'target_epsilon' in k else e.make_private)(**args)
    print('made',time.time()-t)
    return e,r
e,(m,o,l)=setup(noise_multiplier=1.0,epochs=3)
crit=nn.CrossEntropyLoss()
for ep in range(3):
    for a,b in l:
        o.zero_grad(); loss=crit(m(a),b); loss.backward(); o.step()
    t=time.time(); print(ep, loss.item(), e.get_epsilon(1e-5), time.time()-t, (m(X).argmax(1)==y).float().mean().item())
print(e.statement())
from noisewise.statement import verify_data
import json
print(verify_data(json.loads(e.statement().to_json())))
print(verify_data(json.loads(e.statement(1e-6).to_json())))
try:
    for a,b in l: pass
except Exception as er: print(type(er),er)
e,(m,o,c,l)=setup(target_epsilon=2.0,target_delta=1e-5,epochs=2,criterion=nn.CrossEntropyLoss(),grad_sample_mode="ghost")
print(o.noise_multiplier)
