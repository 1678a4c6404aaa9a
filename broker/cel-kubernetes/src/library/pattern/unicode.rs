//! The release of Unicode of the API server, where it differs from that of the `regex` crate.
//!
//! Go has Unicode 15.0 since release 1.21, the crate has 16.0. The tables were made by comparing
//! both for every code point.

use std::sync::LazyLock;

/// The code points whose category or script differs, as ranges in hexadecimal.
const OTHER_CLASS: &str = "897 1b4e-1b4f 1b7f 1c89-1c8a 2427-2429 2ffc-2fff 31e4-31e5 31ef a7cb-a7cd \
    a7da-a7dc 105c0-105f3 10d40-10d65 10d69-10d85 10d8e-10d8f 10ec2-10ec4 10efc \
    11380-11389 1138b 1138e 11390-113b5 113b7-113c0 113c2 113c5 113c7-113ca \
    113cc-113d5 113d7-113d8 113e1-113e2 116d0-116e3 1171e 11bc0-11be1 11bf0-11bf9 \
    11f5a 13460-143fa 16100-16139 16d40-16d79 18cff 1cc00-1ccf9 1cd00-1ceb3 \
    1e5d0-1e5fa 1e5ff 1f8b2-1f8bb 1f8c0-1f8c1 1fa89 1fa8f 1fabe 1fac6 1fadc 1fadf \
    1fae9 1fbcb-1fbef 2ebf0-2ee5d";

/// The code points whose simple case folding differs, as ranges in hexadecimal. In Go none of them
/// folds to another.
const OTHER_FOLDING: &str = "19b 264 390 3b0 1c89-1c8a 1fd3 1fe3 a7cb-a7cd a7da-a7dc fb05-fb06 10d50-10d65 \
    10d70-10d85";

static CLASSES: LazyLock<Vec<(char, char)>> = LazyLock::new(|| ranges(OTHER_CLASS));
static FOLDINGS: LazyLock<Vec<(char, char)>> = LazyLock::new(|| ranges(OTHER_FOLDING));

/// The general categories that Go names, apart from `C` and `Cs`.
const CATEGORIES: &str = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk \
    So Z Zs Zl Zp Cc Cf Co";

/// The scripts that Go names.
const SCRIPTS: &str = "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah \
    Batak Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal \
    Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform \
    Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan \
    Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha \
    Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran \
    Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi \
    Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi \
    Khitan_Small_Script Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A \
    Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen \
    Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive \
    Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari \
    Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki \
    Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian \
    Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene \
    Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra \
    Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese \
    Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa \
    Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi \
    Wancho Warang_Citi Yezidi Yi Zanabazar_Square";

/// Names that only releases of Go from 1.25 on know, without spaces, dashes and underscores. Those
/// releases also ignore the case.
const NEWER_NAMES: &str = "any ascii assigned cn lc casedletter closepunctuation cntrl combiningmark connectorpunctuation control \
    currencysymbol dashpunctuation decimalnumber digit enclosingmark \
    finalpunctuation format initialpunctuation letter letternumber lineseparator \
    lowercaseletter mark mathsymbol modifierletter modifiersymbol nonspacingmark \
    number openpunctuation other otherletter othernumber otherpunctuation \
    othersymbol paragraphseparator privateuse punct punctuation separator \
    spaceseparator spacingmark surrogate symbol titlecaseletter unassigned \
    uppercaseletter";

fn ranges(text: &str) -> Vec<(char, char)> {
    let read = |text: &str| u32::from_str_radix(text, 16).ok().and_then(char::from_u32);
    text.split_whitespace()
        .map(|range| range.split_once('-').unwrap_or((range, range)))
        .filter_map(|(first, last)| Some((read(first)?, read(last)?)))
        .collect()
}

fn contains(ranges: &[(char, char)], c: char) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= c);
    after
        .checked_sub(1)
        .and_then(|before| ranges.get(before))
        .is_some_and(|(_, last)| c <= *last)
}

/// Whether the crate may put the character in other classes than Go does.
pub(super) fn has_other_class(c: char) -> bool {
    contains(&CLASSES, c) || has_other_folding(c)
}

/// Whether the crate folds the character, which Go does not.
pub(super) fn has_other_folding(c: char) -> bool {
    contains(&FOLDINGS, c)
}

/// Returns the characters of [`has_other_folding`] as ranges.
pub(super) fn other_foldings() -> &'static [(char, char)] {
    &FOLDINGS
}

/// What a name of a Unicode class means.
pub(super) enum ClassName {
    /// A class of the `regex` crate with the same members, without brackets.
    Known(String),
    /// A class that has no members.
    Empty,
    /// Whether Go knows the name depends on its release.
    Open,
    Unknown,
}

/// Finds a class by the name that Go gives it.
pub(super) fn class_name(name: &str) -> ClassName {
    let has = |names: &str, name: &str| names.split_whitespace().any(|known| known == name);
    match name {
        // Up to Go 1.24, code points without a character do not count to `C`.
        "C" => return ClassName::Known("\\p{C}".to_owned()),
        "Cs" => return ClassName::Empty,
        _ if has(CATEGORIES, name) => return ClassName::Known(format!("\\p{{{name}}}")),
        _ if has(SCRIPTS, name) => return ClassName::Known(format!("\\p{{sc={name}}}")),
        _ => {}
    }
    let loose = |name: &str| name.replace([' ', '_', '-'], "").to_ascii_lowercase();
    let wanted = loose(name);
    let newer = has(NEWER_NAMES, &wanted)
        || [CATEGORIES, SCRIPTS, "C Cs"]
            .iter()
            .any(|names| names.split_whitespace().any(|known| loose(known) == wanted));
    if newer {
        ClassName::Open
    } else {
        ClassName::Unknown
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_crate_still_has_the_unicode_that_the_tables_are_for() {
        // Added in Unicode 16.0 and 17.0.
        for (pattern, text, known) in [
            ("(?i)^\u{264}$", "\u{a7cb}", true),
            ("^\\p{Lu}$", "\u{a7cb}", true),
            ("^\\p{Lu}$", "\u{a7ce}", false),
        ] {
            let crate_knows = regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(text));
            assert_eq!(crate_knows, known, "{pattern} {text}");
        }
    }
}
