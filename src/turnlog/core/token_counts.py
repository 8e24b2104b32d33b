"""The features of a text that byte-pair tokenisers spend tokens on: words, digits, symbols, gaps, scripts."""

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """How often each feature occurs. The prices of a family of tokenisers turn it into tokens."""

    words: float = 0.0
    long: float = 0.0
    """Every five letters in a row."""
    longer: float = 0.0
    """Every nine letters in a row: compounds and technical words."""
    clusters: float = 0.0
    """Four consonants in a row: foreign words, abbreviations, random letters."""
    uncommon: float = 0.0
    uncommon_letters: float = 0.0
    """Words that are not among the frequent English ones, and their letters."""
    spelt: float = 0.0
    """The tokens of these words, by the letters that are neighbours in them."""
    romance: float = 0.0
    german: float = 0.0
    """Frequent short words of other languages, which have other long words as whole tokens."""
    humps: float = 0.0
    """A capital after a small letter."""
    capitals: float = 0.0
    """Two capitals in a row."""
    shouts: float = 0.0
    """Four capitals in a row: words such as SELECT cost less than random letters."""
    spelt_capitals: float = 0.0
    """The tokens of words of three capitals and more, by the letters that are neighbours in them."""
    mixed: float = 0.0
    """A letter after a digit, as in hexadecimal numbers."""
    groups: float = 0.0
    """Up to three digits in a row."""
    figures: float = 0.0
    """Digits."""
    numbers: float = 0.0
    """A number after a blank."""
    runs: float = 0.0
    """Symbols in a row."""
    pairs: float = 0.0
    rulers: float = 0.0
    """Two symbols in a row, and four of the same."""
    joins: float = 0.0
    """A symbol before a word, which may be one token with it, as `.get` is."""
    links: float = 0.0
    """One symbol between two words."""
    schemes: float = 0.0
    """`://`."""
    commas: float = 0.0
    """A comma before a letter, which is no token with it as `.get` is."""
    tabs: float = 0.0
    """Tabs inside of lines, and before a symbol: unlike a blank they are no token with what follows."""
    ends: float = 0.0
    closes: float = 0.0
    """The end of a line after a word, and after a symbol."""
    indents: float = 0.0
    signs: float = 0.0
    sign_pairs: float = 0.0
    """Typographic signs, and two in a row, as in a box that is drawn."""
    quotes: float = 0.0
    """Of these, those that are in most texts: quotation marks, dashes, bullets."""
    lines: float = 0.0
    bars: float = 0.0
    repeated: float = 0.0
    """Of these, the parts of simple lines, of double lines and bars, and those after the same part, as in a ruler."""
    joiners: float = 0.0
    """The invisible characters that make one emoji of several, or a sign an emoji."""
    han: float = 0.0
    loose: float = 0.0
    looser: float = 0.0
    """Characters outside of the most frequent words, and outside of 2,600."""
    rare: float = 0.0
    traditional: float = 0.0
    """Characters that only traditional Chinese has; they are counted among the rare ones, too."""
    kana: float = 0.0
    kana_pairs: float = 0.0
    """Pairs of kana that are one token in most vocabularies."""
    hangul: float = 0.0
    wide: float = 0.0
    """Full-width signs, such as the Chinese comma."""
    latin: float = 0.0
    latin_rare: float = 0.0
    latin_more: float = 0.0
    """Letters like é, ş, and ế. The last are counted with all characters up to U+1FFF, some of them again below."""
    armenian: float = 0.0
    greek: float = 0.0
    cyrillic: float = 0.0
    hebrew: float = 0.0
    arabic: float = 0.0
    emoji: float = 0.0
    others: float = 0.0
    """Words in letters that are neither Latin nor Cyrillic, between blanks."""
    russian: float = 0.0
    vietnamese: float = 0.0
    """Frequent words of these languages."""
    spelt_cyrillic: float = 0.0
    """The tokens of the other words in Cyrillic letters, by the letters that are neighbours in them."""
    indic: float = 0.0
    """Devanagari, and the scripts near it, which are counted again one by one."""
    thai: float = 0.0
    lao: float = 0.0
    bengali: float = 0.0
    gujarati: float = 0.0
    """With Gurmukhi."""
    tamil: float = 0.0
    """With Odia."""
    telugu: float = 0.0
    """With Kannada."""
    malayalam: float = 0.0
    """With Sinhala."""
    georgian: float = 0.0
    khmer: float = 0.0
    """With Burmese, Ethiopic and Mongolian, which few vocabularies have."""
    cyrillic_more: float = 0.0
    arabic_more: float = 0.0
    arabic_rare: float = 0.0
    """Letters that Russian and Arabic do not have (the last: Uyghur, Kurdish). Such words are cut into more pieces."""
    fixed: float = 0.0
    exact: float = 0.0
    """Tokens that a tokeniser counted."""
