//! "Did you mean": which known name someone meant who typed an unknown one.

use strsim::damerau_levenshtein;

/// The candidate that was probably meant: the one that differs in the fewest characters, if those are at most a third.
pub fn nearest<'c>(given: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let given = given.to_lowercase();
    let differences = |candidate: &str| {
        let length = given.chars().count().max(candidate.chars().count());
        // A long text is no slip of a known name, and comparing it takes a while.
        let different = if length > 64 { length } else { damerau_levenshtein(&given, candidate) };
        (different <= length / 3).then_some(different)
    };
    let near = candidates.into_iter().filter_map(|candidate| Some((differences(candidate)?, candidate)));
    near.min_by_key(|(different, _)| *different).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        let names = ["c", "cpp", "go", "java", "python", "python3", "javascript", "nodejs", "rust", "bash", "sh"];
        let meant = |given: &str| nearest(given, names);
        for (given, expected) in [
            ("pyhton", "python"),
            ("Pyton", "python"),
            ("python3.12", "python3"),
            ("javascirpt", "javascript"),
            ("jav", "java"),
            ("rusty", "rust"),
        ] {
            assert_eq!(meant(given), Some(expected), "{given}");
        }
        for given in ["cobol", "haskell", "r", "c#", "lua", "", &"python".repeat(50)] {
            assert_eq!(meant(given), None, "{given}");
        }
    }
}
