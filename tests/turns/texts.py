"""Texts of five styles, six of each, fixed: what conversations are made of. For measuring the estimator."""

import hashlib
import importlib
import json
import sysconfig
from pathlib import Path

SIZE_CHARS = 8_000

TOPICS = ("objects", "naming", "import", "customization", "attribute-access", "exceptions")
MODULES = ("heapq.py", "textwrap.py", "shlex.py", "csv.py", "queue.py", "json/decoder.py")

CHINESE = (
    "今天下午的会议主要讨论了三个问题。第一，新版本的发布时间是否需要推迟到下个月；第二，测试环境的数据库为什么经常断开连接；"
    "第三，客户反馈的登录失败应该由哪个小组负责处理。大家一致认为，发布时间可以不变，但是必须先修好登录的问题。"
    "数据库的事情由运维同事继续调查，周五之前给出结论。另外，文档部分还有很多内容没有更新，请各位在本周内把自己负责的章节检查一遍，"
    "有疑问的地方直接在群里提出来，不要等到最后一天。",
    "请帮我看一下这份租房合同有没有问题。房东要求一次付清半年的房租，并且押金是两个月的租金。合同里写着，如果我提前搬走，押金不退，"
    "但是没有写房东提前收回房子要赔多少。还有一条说家里的电器坏了都由租客修理，我觉得不太合理，因为冰箱和洗衣机已经用了八年。"
    "我想知道这样的条款在法律上是否有效，签字之前应该让房东改哪些地方，如果他不同意修改，我还有没有别的办法保护自己。",
    "机器学习模型的训练过程可以分为几个步骤。首先要收集足够多的数据，并且检查里面有没有错误或者重复的内容。然后把数据分成三部分，"
    "一部分用来训练，一部分用来调整参数，最后一部分用来检验结果。训练的时候，模型根据输入给出预测，再和正确答案比较，"
    "把误差一层一层地传回去，慢慢修改自己的参数。如果训练得太久，模型会记住训练数据里的细节，遇到新的问题反而答不好，这种现象叫做过拟合。"
    "常见的解决办法有增加数据、减少参数，或者提前停止训练。",
    "您好，我上周在贵公司的网站上购买了一台打印机，订单已经显示签收，但是我到现在还没有收到。我联系了快递公司，对方说包裹放在了小区门口的服务站，"
    "可是服务站的工作人员没有找到。请帮我查询一下具体的签收时间和签收人，如果确实丢失了，希望可以尽快重新发货或者退款。另外，发票的抬头写错了，"
    "需要改成公司的名称，请问应该怎么申请修改？我的联系电话没有变化，工作日的上午都可以联系到我，谢谢。",
    "部署新版本之前，请先确认以下几点。第一，所有的测试已经通过，并且代码已经合并到主分支；第二，数据库已经备份，备份文件可以正常恢复；"
    "第三，配置文件里的密码没有提交到代码仓库。部署的时候先更新一台服务器，观察十分钟，如果没有出现错误，再更新其他的服务器。"
    "如果发现响应时间明显增加，或者日志里出现连接失败的信息，应该立即回到上一个版本，然后再分析原因。部署完成以后，请在系统里记录时间和负责人。",
    "根据公司的规定，员工出差需要提前三天提交申请，说明出差的时间、地点、目的和预计费用，由部门经理批准以后才可以预订机票和酒店。"
    "出差期间的交通费和住宿费按照标准报销，超过标准的部分由个人承担。回来以后一周之内，请把发票和报告一起交给财务部门，"
    "如果发票丢失，需要提供其他可以证明费用的材料。对于临时安排的出差，可以先通过电话取得经理的同意，第二天再补交申请。有问题请联系人事部门。",
)
"""Office and technology."""

TALES = (
    "港口的老管理员有两本账。第一本记着每条船申报的货物，第二本谁也没有看过，记着他自己相信的数目。多数晚上，两本账相差不过一桶。"
    "如果相差太多，他就提着灯笼走到码头，亲自把木桶数一遍，然后再决定值不值得为此争吵。通常是不值得的。他明白，一个小而耐心的误差，"
    "比一个突然的大真相便宜得多，而船长们对这两样都会记得很久。接替他的人觉得这是胡闹。她买了一台秤，在上面画了一条红线，凡是超过红线的一律退回。"
    "不到一个月，港口就空了；两个月之后，她把红线往上挪了一寸。",
    "这道菜做起来并不难。先把豆腐切成小块，用热水泡十分钟，这样炒的时候不容易碎。锅里放一点油，把葱姜蒜炒香，再加入肉末，"
    "炒到颜色变白以后放两勺豆瓣酱。等红油出来，倒入半碗清水，把豆腐轻轻推进锅里，用小火煮五分钟。最后分三次加入水淀粉，"
    "让汤汁慢慢变稠，撒上花椒粉和葱花就可以出锅了。如果家里有老人或者小孩，可以少放一点辣椒，味道同样很好。记得趁热吃，凉了以后豆腐会出水。",
    "秋天的山里，雾气总是来得很早。天刚亮的时候，从窗口望出去，只能看见近处的几棵柿子树，远处的山峰都藏在白色的云里。"
    "村里的人起得比太阳还早，有的去地里收白菜，有的挑着担子去镇上赶集。孩子们背着书包，沿着小路一边走一边唱歌，声音在山谷里传得很远。"
    "等到中午，雾慢慢散开，山坡上的红叶一片一片地露出来，好像有人夜里偷偷地点了一把火。外地来的客人常常在桥头站很久，忘了拍照，也忘了说话。",
)
"""Of other subjects, in rarer words."""


def english():
    topics = importlib.import_module("pydoc_data.topics").topics
    return [topics[name][:SIZE_CHARS] for name in TOPICS]


def code():
    folder = Path(sysconfig.get_path("stdlib"))
    return [(folder / name).read_text("utf-8")[1_000 : 1_000 + SIZE_CHARS] for name in MODULES]


def records():
    """JSON as interfaces give it: ids, words, numbers, times, flags."""
    return [json.dumps([record(n, k) for k in range(20)], indent=(None, 2)[n % 2]) for n in range(6)]


def record(n, k):
    digest = hashlib.sha256(f"{n}.{k}".encode()).hexdigest()
    words = CITIES[(n * 5 + k) % len(CITIES)], NAMES[(n * 7 + k * 3) % len(NAMES)]
    return {
        "id": digest[:12],
        "customer": {"name": words[1], "city": words[0], "active": k % 3 == 0},
        "total": int(digest[:4], 16) / 100,
        "items": int(digest[4:6], 16) % 9 + 1,
        "created_at": f"2025-{n + 1:02}-{k + 1:02}T{k:02}:{n * 7:02}:00Z",
        "status": ("paid", "open", "cancelled")[(n + k) % 3],
        "note": None if k % 4 else f"deliver to the back door of the {words[0]} office",
    }


CITIES = ("Lisbon", "Osaka", "Nairobi", "Quito", "Tallinn", "Perth", "Bergen", "Austin", "Lyon", "Kraków")
NAMES = ("Ada Berg", "Tom Okoye", "Lin Marsh", "Ana Duarte", "Joe Park", "Mia Rossi", "Ben Cole")


def mixed():
    """A question in Chinese, a bit of code, its output and an English remark."""
    parts = zip(CHINESE, english(), code(), records(), strict=True)
    return [f"{zh}\n\n```python\n{py[2_000:3_200]}\n```\n{js[:600]}\n\n{en[1_500:2_300]}" for zh, en, py, js in parts]


STYLES = {"english": english, "code": code, "json": records, "chinese": lambda: list(CHINESE), "mixed": mixed}
