//! Looks for stop strings in a text that comes in pieces.
//!
//! A stop string may begin in one piece and end in another. So what may still become one is held back until it is
//! decided. No text before a stop string is lost, and nothing of the stop string is shown.

/// The search for stop strings in one text. What it holds back is shorter than the longest stop
/// string.
#[derive(Clone, Debug)]
pub(super) struct StopScan {
    stops: Vec<String>,
    /// The end of the text, which may be the begin of a stop string.
    held: String,
}

/// What can be shown of a text.
#[derive(Debug, PartialEq)]
pub(super) struct ShownText {
    pub(super) text: String,
    /// Whether a stop string comes next, with which the text ends.
    pub(super) is_over: bool,
}

impl StopScan {
    /// The search for any of `stops`, none of which is empty.
    pub(super) fn new(stops: &[String]) -> Self {
        Self { stops: stops.to_vec(), held: String::new() }
    }

    /// Takes the next piece, and returns what can be shown. Once a stop string was found, no
    /// further piece may come.
    pub(super) fn push(&mut self, piece: &str) -> ShownText {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return ShownText { text: std::mem::take(&mut self.held), is_over: true };
        }
        let kept = self.stops.iter().map(|stop| begun(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        ShownText { text: std::mem::replace(&mut self.held, rest), is_over: false }
    }

    /// Ends the text, and returns what was held back: the begin of a stop string that did not come.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// How many bytes at the end of the text begin the stop string, but not all of it. It tries the
/// longest begin first, and only begins of whole letters.
fn begun(text: &str, stop: &str) -> usize {
    let mut ends = stop.char_indices().map(|(at, _)| at).rev();
    ends.find(|at| text.ends_with(&stop[..*at])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of these pieces, and whether a stop string ended it.
    fn shown(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut scan = StopScan::new(&stops);
        let mut text = String::new();
        for piece in pieces {
            let ShownText { text: more, is_over } = scan.push(piece);
            text += &more;
            if is_over {
                return (text, true);
            }
        }
        (text + &scan.finish(), false)
    }

    #[test]
    fn a_stop_string_is_found_across_the_borders_of_tokens() {
        assert_eq!(shown(&["END"], &["a E", "N", "D b"]), ("a ".to_owned(), true));
        assert_eq!(shown(&["END"], &["a E", "N", "N b"]), ("a ENN b".to_owned(), false));
        assert_eq!(shown(&["\n\n"], &["a\n", "b\n", "\nc"]), ("a\nb".to_owned(), true));
        assert_eq!(shown(&["aab"], &["a", "a", "a", "b"]), ("a".to_owned(), true));
    }

    #[test]
    fn the_first_of_several_stop_strings_ends_the_text() {
        assert_eq!(shown(&["c", "b"], &["abc"]), ("a".to_owned(), true));
        assert_eq!(shown(&["bcd", "c"], &["ab", "c"]), ("ab".to_owned(), true));
        assert_eq!(shown(&[], &["abc", ""]), ("abc".to_owned(), false));
    }

    #[test]
    fn letters_of_several_bytes_are_not_cut() {
        assert_eq!(shown(&["ä😀"], &["xä", "ä", "😀"]), ("xä".to_owned(), true));
        assert_eq!(shown(&["ä😀"], &["xä"]), ("xä".to_owned(), false));
    }

    #[test]
    fn what_cannot_become_a_stop_string_is_shown_at_once() {
        let mut scan = StopScan::new(&["STOP".to_owned()]);
        assert_eq!(scan.push("a b"), ShownText { text: "a b".to_owned(), is_over: false });
        assert_eq!(scan.push("c ST"), ShownText { text: "c ".to_owned(), is_over: false });
        assert_eq!(scan.push("x"), ShownText { text: "STx".to_owned(), is_over: false });
    }
}
