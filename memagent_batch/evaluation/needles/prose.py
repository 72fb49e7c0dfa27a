"""Written prose for held-out documents: running text that the tiny policy's training never sees."""

PARAGRAPHS: tuple[tuple[str, ...], ...] = (
    (
        "The ferry left half an hour behind its timetable, because the mechanic would not sign for the left engine.",
        "Most of the passengers had already gone below, where the stove was lit and a radio played dance tunes.",
        "Only the schoolteacher stayed on deck, wrapped in a coat that had belonged to her brother.",
        "She counted eleven gulls, then lost them against the cliffs.",
        "By the time the harbour lights came on, she had decided not to write the letter after all.",
    ),
    (
        "Bread fails for dull reasons.",
        "The flour may be too old, the water too warm, or the baker too hurried to let the dough rest.",
        "My grandmother weighed nothing; she pinched the dough behind her ear, as she used to put it, and knew.",
        "When I finally bought scales, I found that her handful of salt was nine grams, every single time.",
    ),
    (
        "A bridge inspector spends surprisingly little of the year on bridges.",
        "There are forms to be filled in, photographs to be labelled, and long calls about who pays for scaffolding.",
        "The rest is patience: tapping rivets, listening for the flat note that means rust has crept underneath.",
        "In 1987 a colleague of ours heard such a note and closed a crossing used by four thousand cars a day.",
        "People were furious for a month and grateful for about a week.",
    ),
    (
        "Nothing in the contract said that deliveries had to come through the front entrance.",
        "Even so, the caretaker insisted on it, and the drivers, who were paid by the stop, grumbled but obeyed.",
        "A compromise was reached in spring: heavy parcels through the yard, everything else past his window.",
        "He kept a notebook with the arrival times, which nobody ever asked to see.",
    ),
    (
        "Swifts sleep while flying, or so it is claimed, and they may stay aloft for ten months without landing.",
        "The proof took decades, since a bird that weighs forty grams cannot carry much of an instrument.",
        "Eventually a logger lighter than a paper clip was glued between the wings of nineteen adults.",
        "When they were caught again, the record showed hardly a minute of rest.",
    ),
    (
        "Our committee met on Thursdays, in a room that smelled of floor polish and wet umbrellas.",
        "Minutes were taken by whoever arrived last, a rule that made everyone remarkably punctual.",
        "For years we discussed the fountain: whether to mend it, to move it, or to admit that it had never worked.",
        "The motion to fill it with soil and plant lavender passed by a single vote, and bees came within days.",
    ),
    (
        "To read an old map you must first forgive it.",
        "Its maker had perhaps walked along one shore and merely heard about the other.",
        "Distances were guessed from the hours a loaded mule needs, so mountains look wider than they are.",
        "What seems a mistake is often a memory of bad weather.",
        "Lay a modern chart over it and you will see where the traveller was afraid.",
    ),
    (
        "The laboratory kept its oldest freezer running out of superstition.",
        "It had survived two floods, three directors and a fire drill that turned out not to be a drill.",
        "Every student was told never to open the bottom drawer, and every student did.",
        "Inside lay a tray of unlabelled tubes and a birthday cake from a forgotten decade.",
    ),
    (
        "It rained so steadily that week that the postman stopped apologising for soaked envelopes.",
        "Cellars filled in the lower street, and neighbours who had not spoken for years passed buckets hand to hand.",
        "On Friday the pumps arrived, with a crew of six who slept in the gymnasium.",
        "Somebody painted the high-water mark on the wall of the pharmacy, with the date beneath it.",
        "Children now measure themselves against that line.",
    ),
    (
        "Repairing watches is mainly a matter of keeping dust away and temper in check.",
        "A screw no longer than a grain of rice can jump from the tweezers and vanish for an entire afternoon.",
        "He swept his floor with a magnet each evening and found, over the years, enough parts for two clocks.",
        "Neither of them kept good time, but both struck the hour with conviction.",
    ),
    (
        "Whether the comet would be visible depended on the haze above the valley.",
        "We drove up past the last farm, switched off the headlamps and waited for our eyes to adjust.",
        "At first there was only a smudge, like breath on a windowpane.",
        "Then Leonie pointed slightly to the left of it, and there it hung, tail and all.",
        "No photograph that I took that night shows anything but darkness.",
    ),
    (
        "The auction began with farm tools, went on to furniture, and reached the paintings after lunch.",
        "Lot 214 was described as a coastal scene by an unknown hand, slightly damaged in one corner.",
        "Two bidders on the telephone pushed it far beyond the estimate, while the room sat perfectly quiet.",
        "Afterwards it emerged that each had been bidding for the same museum.",
    ),
    (
        "Tea was introduced to the estate by accident, when seedlings meant for another colony were unloaded too soon.",
        "The overseer planted them along a drainage ditch and forgot about them.",
        "Thirty years later the ditch was a hedge, and the hedge was the most valuable thing on the property.",
    ),
    (
        "Languages borrow words the way households borrow ladders: with every intention of giving them back.",
        "Sailors bring home names for knots and winds, cooks for sauces, engineers for whatever was just invented.",
        "After a generation or two the word has lost its accent and nobody remembers the loan.",
        "Purists write to newspapers about it, using dozens of such words in each letter.",
    ),
    (
        "The night train carried mail, soldiers, and a surprising number of musicians.",
        "They travelled cheaply because the conductor played the clarinet, badly, and liked to be corrected.",
        "Somewhere beyond the border a quartet would usually form in the dining car.",
        "Passengers complained in 3 languages and applauded in all of them.",
    ),
    (
        "Winter wheat goes into the ground when the rest of the farm is being put away.",
        "It wants cold before it will think of flowering, a stubbornness that breeders have tried to talk it out of.",
        "Under snow the young shoots hardly move, yet their roots go on exploring, a finger's length each mild week.",
        "By April the field looks as though someone had combed it.",
    ),
    (
        "Quarterly figures were due on the 14th, and the spreadsheet refused to balance.",
        "An hour of searching revealed a column that had been summed twice since the previous summer.",
        "Nobody had profited from the error, which made it harder to explain.",
        "The auditor, a kind man with enormous glasses, said that he saw it about once a month.",
    ),
    (
        "When the theatre burned, the costumes were at the cleaner's, and so the season was saved.",
        "Performances moved to a tram depot with a glass roof.",
        "Rain drowned out entire monologues, and the audience learned to read lips.",
        "Critics called it the most attentive public in the country.",
    ),
)
"""Paragraphs, each as its sentences in order."""
