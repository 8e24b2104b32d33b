"""Decides which parts of a Chinese text a tokeniser probably has as single tokens: frequent words and characters.

It does not segment Chinese and is no vocabulary. A few hundred words are enough to distinguish a subject that
tokenisers know well from one that they spell out; a count of characters cannot do that.
"""

import re
from typing import Final

_WORDS: Final = (
    "时间中国一个信息管理数据公司可以服务方法使用什么不能没有内容结果工作我们怎么问题表示系统发展进行所有企业安全通过"
    "产品如果开始相关国家第一方式生活社会需要不是世界成功自己可能同时技术资源经济文件市场项目人民用户中心北京教育活动"
    "这个处理选择研究就是以上作者网络提供建设存在其中国际设计时候注意如何知道情况联系其他是否单位责任方面设置重要现在"
    "操作位置文化政府大学综合已经这里手机学生显示以下完成个人游戏了一发布电话城市状态类型价格人员商品所以生产目前的是"
    "条件文章更多投资第二平台历史组织我的因为主要代表大家记录来源关系的一基本这样了解程序工程朋友专业影响科技万元发现"
    "合作分钟函数到了部分美国认为健康成为质量还是环境视频说明学习规定小时好的非常功能今年多少介绍支持部门科学过程计划"
    "执行输入全国当前对象能力很多全部分析根据有效但是客户增长的人地址标准不同领导消息银行他们创新产业发生喜欢今天行业"
    "日本更新一次亿元参数地区计算应用精神开发控制最后希望数字机构起来都是编辑第三关注利用模式错误任务只有孩子政策新闻"
    "任何集团这些不到最大会议基础交通真的汽车作为记者主义分享时代中的确定一定一步包括电影国内一直出来提高书记改革時間"
    "电子法律不会学校正在交易方案一般目标事件那么关键意思分类中央经营出现现场支付大小大的有限经验品牌原因销售注册系列"
    "保护旅游知识体育上海地方返回资料全面开展还有作用来说例如结束不过两个实际报告进入一起对于创建以来获得不可修改制度"
    "连接网站直接结构消费交流要求名称图片必须重点也是解决金融实施无法作品或者不要这一一下增加积极阅读这种思想继续正确"
    "未来因此坚持水平属于是一先生以及特别推进数量医院干部材料具体智能比赛负责上的左右日期比较自然政治培训报道具有描述"
    "稳定老师参加设备不断应该测试资金主题教学帮助失败评论媒体实现获取艺术文字关于提升行政建立代码全球超过宣传达到不得"
    "保险行为真实需求价值意见添加生命规划不了能够看到职业个月电视加强重新特色建筑故事参与办法有关自动领域成本目的范围"
    "点击统计简单方向美元这么形式专家收入程度主任提示里面体系新的落实有人生成行动医疗基金公开工业如此提出战略现代那个"
    "请求下面风险学院定义输出持续空间普通详细过去推荐微信检查联网参考委员面积核心告诉查询家庭字符这是保障觉得通知机关"
    "甚至为了成立下载正常制造的话完全中华男人配置生态之前共同平均查看运动取得接受在线几个版本规模女人理论传统党的期间"
    "群众容易办公保持速度卫生我国申请之一区域公共才能咨询分别措施民族之间其实保存另一哪里得到异常随着删除结合及时疫情"
    "开放搜索商业努力完整必要太阳资产能源哈哈出了各种下来效果阶段变化欢迎机制按照身份准备形成一样明确州市意义属性意识"
    "农业联合导致造成深入一些严重另外人才工具事业实践指导发表香港首先一点值得比如一天食品东西资本体验调查产生娱乐链接"
    "原则周期来自受到世纪优势建议力量然后竞争基地只是"
)
"""The 600 pairs of characters that three vocabularies with much Chinese (o200k, Qwen's, DeepSeek's) rank highest on
average. They were not chosen from any text, so a few are not words.
"""


def _pairs(text: str) -> list[memoryview]:
    """Every two neighbouring characters as one number: the pairs that begin at even positions, then those at odd ones.

    A regular expression with one branch per first character takes three times as long.
    """
    units = text.encode("utf-16-le", "surrogatepass")
    return [memoryview(units[start : start + (len(units) - start) // 4 * 4]).cast("I") for start in (0, 2)]


_WORD_PAIRS: Final = frozenset(_pairs(_WORDS)[0])
_FREQUENT: Final = re.compile(f"[{_WORDS} ]+")
_HAN: Final = re.compile("[\u4000-\u9fff]+")
"""The characters whose UTF-8 begins with E4 to E9, as the other counts have it."""


def count_in_words(text: str) -> int:
    """Counts the characters that are part of a frequent word, each in one word only."""
    even, odd = _pairs(text)
    found = bytearray(len(even) + len(odd))
    found[::2] = bytes(map(_WORD_PAIRS.__contains__, even))
    found[1::2] = bytes(map(_WORD_PAIRS.__contains__, odd))
    # Two matches in a row share a character, so the second does not count.
    return 2 * found.replace(b"\1\1", b"\1").count(1)


def only_han(text: str) -> str:
    """The rows of Han characters, with a blank between: everything else only costs time."""
    return " ".join(_HAN.findall(text))


def count_rare(text: str) -> int:
    """Counts the characters that do not occur in frequent words: those in them are frequent on their own, too."""
    return len(_FREQUENT.sub("", text))
