"""The most frequent characters of the languages that older encodings were made for: they tell encodings apart.

Single-byte encodings decode nearly anything, and the double-byte ones share most of their codes, so validity says
little; that the text is made of common characters says nearly all.
"""

_PUNCTUATION = "，。、；：？！“”‘’（）《》—…·「」『』【】　％"
_CHINESE = (  # written alike in both
    "的一是不在人有我他中大上和地到以出可也你生能而子那得于着下自之年作用道行所然家事成方多去法如都同起看定天分好小"
    "部其些主理心她本前但因只想日者意力它把十民第公此已工使情明性知全三又正外高由很最重手文美相被利二等或新己制身果加"
    "西月回特代先海教原立及比水名走各入口平系更打女四神安少反太量再感建接必市直山金指至社空色北北路交告住求死世位度常"
)
_SIMPLIFIED = (
    "这个们来为国说时要会对过发后里种经么学现当没动面还进样开从实军无与长机关点业将两间问并物应战向头体政见产话合"
    "内信表化老给门任东声提员解论处义几认条气题活尔别变总何电数报结受目务做场件计管期资统区队决马书听达权设类据张规"
)
_TRADITIONAL = (
    "這個們來為國說時要會對過發後裡種經麼學現當沒動面還進樣開從實軍無與長機關點業將兩間問並物應戰向頭體政見產話合"
    "於內信表化老給門任東聲提員解論處義幾認條氣題活爾別變總何電數報結受目務做場件計管期資統區隊決馬書聽達權設類據張規"
)
_KANA = (
    "のにはをたがでとしてれさあいるもなかっりこまらきすくよんそどえうわけちつせめろおみじへばだ"
    "ーンスルトリアイラドレクシタテコフロカ、。「」・日本人年大国会一"
)
_HANGUL = (
    "이다는에의을가하고지도로사은기를한서리자어인해나일대시있정그부수스것전아보제과주라들성장상와게여었으연"
    "국경구원공안신유세오학적민선조전우생미당만면비모치소마진동계방무양지개말회때던할했던되"
)
_CYRILLIC = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфёіїєўґ«»—–№“”„"
_QUOTES = "’‘“”„–—…«»°·•€"
_WESTERN = "éèêëàâäáåãçñóòôöõúùûüíìîïßæøœÉÈÀÂÇÊÜÖÄÅØÑÓÁÍÚ£©®§½¼×ºª¿¡´" + _QUOTES
_CENTRAL = "ąćęłńóśźżáčďéěíňřšťúůýžőűäöüăâîșțşţđĄĆĘŁŃŚŻŹÁČŘŠŽÉÍÚ" + _QUOTES

FREQUENT: dict[str, frozenset[str]] = {  # the first wins where two are as good
    "gb18030": frozenset(_CHINESE + _SIMPLIFIED + _TRADITIONAL + _PUNCTUATION),
    "big5": frozenset(_CHINESE + _TRADITIONAL + _PUNCTUATION),
    "cp950": frozenset(_CHINESE + _TRADITIONAL + _PUNCTUATION),
    "big5hkscs": frozenset(_CHINESE + _TRADITIONAL + _PUNCTUATION),
    "shift_jis": frozenset(_KANA),
    "cp932": frozenset(_KANA),
    "euc_jp": frozenset(_KANA),
    "euc_kr": frozenset(_HANGUL),
    "cp949": frozenset(_HANGUL),
    "cp1252": frozenset(_WESTERN),
    "cp1250": frozenset(_CENTRAL),
    "cp1254": frozenset("ğışçöüĞİŞÇÖÜâî" + _QUOTES),
    "cp1251": frozenset(_CYRILLIC),
    "koi8_r": frozenset(_CYRILLIC),
    "cp1253": frozenset("αοιετσνηυρπκμλςίόάέήύώδγχθφβξζψ" + _QUOTES),
    "cp1255": frozenset("יוהלאתמרשנבדקפעחצגטםןכסזךףץ" + _QUOTES),
    "cp1256": frozenset("اليمنوترسبدةعكفقحهجشصطأخذغزثضىءئ،" + _QUOTES),
}
LATIN = {"cp1252", "cp1250", "cp1254"}  # alphabets that are mostly ASCII
ALPHABETS = {"cp1251", "koi8_r", "cp1253", "cp1255", "cp1256"}
WIDE = frozenset().union(*FREQUENT.values())
