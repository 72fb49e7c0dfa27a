"""Words that needle documents are made of, each list cut into a training and a held-out part by its reader."""


def _word_list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's noise paragraph."""

ADJECTIVES = _word_list(
    """
    amber ancient arctic autumn bitter blazing blue bold brass brave brief bright brisk broad bronze busy calm candid
    careful cedar cheerful chilly civil clever cloudy coastal cobalt cold common copper coral cosmic crimson crisp
    curious dapper daring dusty eager early eastern elder electric emerald empty endless faint fair famous fancy
    fearless fertile fierce final flat fleet floral foggy fond formal fragile fresh frosty gentle giant gilded glad
    glossy golden graceful grand gray green hallow handy happy hardy hasty hazel heavy hidden hollow honest humble icy
    idle indigo inner ivory jade jolly keen kind large late lavish leafy light little lively lone lofty loyal lucky
    lunar marble mellow merry mighty mild misty modest mossy narrow neat nimble noble northern odd olive open orange
    pale patient pearl placid plain polar polite prime proud purple quick quiet rapid rare red remote rigid ripe rough
    round royal rugged rustic rusty salty sandy scarlet secret sharp shiny short shy silent silver simple sleepy slim
    slow small smart smooth snowy sober soft solar solid southern spare steady steep stern still stormy stout strange
    strong sturdy sudden sunny swift tall tame tender thin tidy timid tiny tough tranquil upper vague vast velvet
    violet vivid warm wary western white wide wild windy wise witty wooden yellow young zealous
    """
)

NOUNS = _word_list(
    """
    acorn anchor anvil apple arrow badger bakery balcony barn basin basket beacon beaver bell bench bicycle blanket
    boat border bottle bridge broom bucket butter button cabin camel candle canoe canyon carpet castle cellar chapel
    chimney circle clock cloud clover coast comet compass cottage cradle crane cricket crown dagger daisy desert
    diamond dolphin donkey dragon eagle ember engine falcon farmer feather fence fern ferry fiddle field flame flute
    forest fossil fountain fox garden gate ginger glacier goose granite grape guitar hammer harbor harvest hawk hedge
    heron hill hinge horizon hornet house island jacket jar jungle kettle key kitchen kite ladder lagoon lake lamp
    lantern lemon library lizard lobster magnet maple market meadow melon mill mirror monkey moon mountain museum
    needle nest oak ocean orchard otter owl oyster paddle palace panda parcel parrot path pebble pencil pepper pickle
    pigeon pillow pine planet plum pocket pond poplar prairie pumpkin quarry quartz rabbit raven ribbon river robin
    rocket rooster saddle sail salmon school scooter shadow shell shepherd shore signal sparrow spider spruce station
    stone summit table temple thistle thunder ticket tiger timber tower tractor trail tulip tunnel turtle valley
    village violin wagon walnut walrus waterfall whale wheel willow window winter wolf wrench zebra
    """
)

VERBS = _word_list(
    """
    admired asked avoided bought brought built called carried checked cleaned collected copied counted covered
    crossed described drew expected followed forgot found gathered guarded hid ignored kept liked lost measured
    mended missed moved noticed opened painted passed placed praised promised reached read remembered repaired
    returned saw sold studied touched traded visited watched
    """
)

FIRST_NAMES = _word_list(
    """
    Ada Albert Alma Anton Basil Bruno Carla Celia Clara Conrad Cora Dora Edgar Edith Elena Emil Felix Flora Frida
    Gustav Hanna Hugo Ida Irene Jonas Julia Karl Lena Leo Lydia Marta Max Mina Nora Olga Oscar Paula Rosa Rufus
    Selma Simon Stella Theo Tilda Vera Victor Wanda Yvonne
    """
)

PLACES = _word_list(
    """
    attic bank bay cave church corner courtyard crossing depot district farmyard ferry-landing gallery hallway
    harbour-wall hilltop hospital inn junction kitchen-yard market-square mine office old-town park pier plain
    playground port post-office quay railway ridge school-yard square station-hall street theatre town-hall
    upper-road wharf workshop
    """
)

NUMBER_ATTRIBUTES = (
    "access code",
    "account number",
    "badge number",
    "batch number",
    "contract number",
    "customer number",
    "gate code",
    "invoice number",
    "locker number",
    "order number",
    "permit number",
    "phone number",
    "room code",
    "serial number",
    "shelf number",
    "ticket number",
)
"""What a number can be; the words of the needle and of the question."""

WORD_ATTRIBUTES = ("call sign", "cover name", "password", "secret word")
"""What a word can be."""

SYLLABLES = _word_list(
    """
    ba be bi bo bra bri cal can cor cu da del di do dra dru e el en fa fen fi flo ga gar ge gli go gra ha hel hin i
    in jo ju ka kel ki kor kra la lem li lo lu ma mar mel mi mo mun na nel ni no nu o or pa pel pi plo pra qui ra
    rel ri ro ru sa sel shi sko sol sta su ta tel thi to tra tri tu u ul va vel vi vo wa wen wi xa ya yel zan ze zi zu
    """
)

SYLLABLE_ENDS = _word_list("b ck d f g k l ll m n nd ng nt p r rd rn s sh st t th tt v x z")

SENTENCES = (
    "The {adjective} {noun} near the {place} {verb} the {noun}.",
    "{name} {verb} a {noun} and a {adjective} {noun}.",
    "In the {place}, {name} {verb} the {adjective} {noun} before noon.",
    "Nobody at the {place} {verb} the {noun} that {name} had {verb}.",
    "There were {small} {noun}s behind the {place}, and {name} {verb} them all.",
    '"Have you seen the {noun}?" asked {name}.',
    '"It was {adjective}," said {name}, "and the {noun} was {adjective} too."',
    "By {year}, the {place} of {made_name} had {small} shops and a {noun}.",
    "The {noun} is {adjective}, but the {noun} is {adjective}.",
    "When the {noun} was {adjective}, {name} and {name} {verb} the {place}.",
    "{made_name} {verb} the {made} for {small} days.",
    "Some say that the {made} of {made_name} is a {adjective} kind of {noun}.",
    "One of the {noun}s was {adjective}; the others were {adjective}.",
    "The price of the {noun} was {small} at the {place} in {year}.",
    "For the {noun} it was too late, so {name} {verb} the {noun}.",
    "Why did {name} leave the {noun} at the {place}?",
    "It was a {adjective} day; the {noun} stood by the {place} (as {name} {verb} it).",
    "On page {small} of the {made} report, {name} {verb} a {adjective}-{noun} pattern.",
    "The {place} keeper, {name} {made_name}, {verb} the {noun}'s {noun}.",
    "After {small} years the {adjective} {noun} of {made_name} was {adjective} again.",
    "Remember the {noun}, said {name}, and the {adjective} {place}.",
    "According to {name}, the {noun} {verb} at the {place} was not {adjective}.",
    "The special {noun} for {name} is {adjective}.",
    "{made} {made} {made}, {made} {made}.",
    "Here {name} {verb} {made} and {made}, there the {adjective} {made} {verb} {made_name}.",
)
"""Grammar of the synthetic running text; slots are filled at random."""
