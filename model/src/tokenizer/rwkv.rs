//! The RWKV World tokenizer: at each position it takes the longest entry of a vocabulary of byte
//! strings.
//!
//! A vocabulary file has a line per entry, `id literal bytes`. The literal is one of Python, `'…'`
//! or `"…"` for text and `b'…'` for bytes that are not UTF-8, and may contain spaces. There is no
//! splitting, merging or normalising, so encoding is one walk down a trie per token. Every single
//! byte is an entry, so every text has tokens.
//!
//! The trie is stored in flat arrays. Nodes are numbered breadth first, so the children of a node
//! are neighbours, and an array of bytes labels them. A table of 65,536 entries gives the node of
//! each pair of bytes. A walk does not allocate.
//!
//! Source: RWKV-LM, the class `TRIE` of its `rwkv_tokenizer.py`, which made the golden ids. Id 0 is
//! not an entry; RWKV's models read it as the boundary of documents.

use std::collections::VecDeque;
use std::ops::Range;

use super::file::FileError;

/// A vocabulary as a trie of byte strings.
#[derive(Debug)]
pub(super) struct Trie {
    /// The entry of each single byte. `[256]`
    single: Vec<u32>,
    /// The node of each pair of bytes, at index 256 · first + second; 0 where no entry begins with
    /// the pair. `[65536]`
    second: Vec<u32>,
    /// The id of the entry that ends at a node, 0 where none does. `[N]`
    entries: Vec<u32>,
    /// The first child of each node; the children end where those of the next begin. `[N + 1]`
    children: Vec<u32>,
    /// The byte that leads to a node. `[N]`
    labels: Vec<u8>,
    /// The bytes of all entries in the order of their ids.
    bytes: Vec<u8>,
    /// Where the bytes of each id end; they begin where those of the previous id end.
    ends: Vec<u32>,
}

impl Trie {
    /// Reads a vocabulary file, line by line.
    ///
    /// # Errors
    /// If a line has another format, an id or a string occurs twice, or a byte has no entry.
    pub(super) fn parse(file: &[u8]) -> Result<Self, FileError> {
        let lines = file.split(|byte| *byte == b'\n').enumerate();
        let mut entries = Vec::new();
        for (index, line) in lines {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let wrong = |why| FileError::Line {
                line: index + 1,
                why,
                excerpt: String::from_utf8_lossy(line).chars().take(EXCERPT_CHARS).collect(),
            };
            entries.push(entry(line).map_err(wrong)?);
        }
        entries.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes).then(a.id.cmp(&b.id)));
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].bytes == pair[1].bytes) {
            return Err(FileError::Twice { what: "an entry", id: pair[1].id });
        }
        let trie = Self::build(&entries)?;
        match trie.single.iter().position(|id| *id == 0) {
            Some(byte) => Err(FileError::NoByte(byte)),
            None => Ok(trie),
        }
    }

    /// Builds the trie of entries that are sorted by their bytes.
    fn build(sorted: &[Entry]) -> Result<Self, FileError> {
        let (mut entries, mut children, mut labels) = (Vec::new(), Vec::new(), vec![0]);
        // For each node the entries below it, and its depth.
        let mut queue: VecDeque<(Range<usize>, usize)> = [(0..sorted.len(), 0)].into();
        while let Some((mut below, depth)) = queue.pop_front() {
            // The shortest entry comes first in the order of bytes.
            let ends_here = sorted[below.clone()].first().filter(|e| e.bytes.len() == depth);
            entries.push(ends_here.map_or(0, |entry| entry.id));
            below.start += usize::from(ends_here.is_some());
            children.push(labels.len() as u32);
            for group in sorted[below.clone()].chunk_by(|a, b| a.bytes[depth] == b.bytes[depth]) {
                labels.push(group[0].bytes[depth]);
                queue.push_back((below.start..below.start + group.len(), depth + 1));
                below.start += group.len();
            }
        }
        children.push(labels.len() as u32);
        let (bytes, ends) = by_id(sorted)?;
        let (single, second) = (vec![0; 256], vec![0; 1 << 16]);
        let mut trie = Self { single, second, entries, children, labels, bytes, ends };
        for first in 0..=255 {
            let node = trie.child(0, first);
            if node > 0 {
                trie.single[usize::from(first)] = trie.entries[node];
                for second in 0..=255 {
                    trie.second[place(first, second)] = trie.child(node, second) as u32;
                }
            }
        }
        Ok(trie)
    }

    /// One more than the greatest token id.
    pub(super) fn tokens(&self) -> usize {
        self.ends.len()
    }

    /// Appends the ids of a text, the longest entry at each place. Every byte is an entry, so it
    /// ends.
    pub(super) fn encode(&self, text: &[u8], ids: &mut Vec<u32>) {
        let mut rest = text;
        while let Some(first) = rest.first() {
            let (id, length) = self.longest(*first, rest);
            ids.push(id);
            rest = &rest[length..];
        }
    }

    /// The bytes of an id; empty if it is not an entry.
    pub(super) fn decode(&self, id: usize) -> &[u8] {
        let end = |id: usize| self.ends.get(id).map_or(0, |end| *end as usize);
        let begin = id.checked_sub(1).map_or(0, end);
        self.bytes.get(begin..end(id)).unwrap_or_default()
    }

    /// The longest entry at the start of `text`, and its length; `first` is the first byte.
    fn longest(&self, first: u8, text: &[u8]) -> (u32, usize) {
        let mut best = (self.single[usize::from(first)], 1);
        let Some(&second) = text.get(1) else { return best };
        let mut node = self.second[place(first, second)] as usize;
        let mut length = 2;
        while node != 0 {
            if self.entries[node] != 0 {
                best = (self.entries[node], length);
            }
            let Some(&next) = text.get(length) else { break };
            node = self.child(node, next);
            length += 1;
        }
        best
    }

    /// The child of `node` for `byte`; 0, the root, if there is none.
    fn child(&self, node: usize, byte: u8) -> usize {
        let (begin, end) = (self.children[node] as usize, self.children[node + 1] as usize);
        let labels = &self.labels[begin..end];
        // Most nodes have one child, and only a few have many.
        let found = if labels.len() <= SCAN_MAX {
            labels.iter().position(|label| *label == byte)
        } else {
            labels.binary_search(&byte).ok()
        };
        found.map_or(0, |index| begin + index)
    }
}

/// A line of the file: an id, and the bytes that it stands for.
struct Entry {
    /// The id, from 1 to 1,048,575.
    id: u32,
    /// The bytes that the literal between the first and the last space stands for.
    bytes: Vec<u8>,
}

/// The bytes of all entries in the order of ids, and the end of each.
fn by_id(sorted: &[Entry]) -> Result<(Vec<u8>, Vec<u32>), FileError> {
    let mut order: Vec<&Entry> = sorted.iter().collect();
    order.sort_unstable_by_key(|entry| entry.id);
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for entry in order {
        let id = entry.id as usize;
        if id < ends.len() {
            return Err(FileError::Twice { what: "an id", id: entry.id });
        }
        ends.resize(id, bytes.len() as u32);
        bytes.extend_from_slice(&entry.bytes);
        ends.push(bytes.len() as u32);
    }
    Ok((bytes, ends))
}

/// The index of a pair of bytes in `second`.
fn place(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

/// Parses a line `id literal bytes`.
fn entry(line: &[u8]) -> Result<Entry, &'static str> {
    let line = str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    let form = "it is not `id literal bytes`";
    let (id, rest) = line.split_once(' ').ok_or(form)?;
    let (literal, length) = rest.rsplit_once(' ').ok_or(form)?;
    let id = id.parse().ok().filter(|id| (1..=ID_MAX).contains(id));
    let id = id.ok_or("its id is not a number from 1 to 1,048,575")?;
    let bytes = literal_bytes(literal).ok_or("its literal is not one of Python")?;
    if length.parse() != Ok(bytes.len()) || bytes.is_empty() {
        return Err("its literal has another length than it says");
    }
    Ok(Entry { id, bytes })
}

/// The bytes of a literal of Python: text as UTF-8, or bytes. So the escape `\xe9` is two bytes in
/// a text, and one byte in bytes.
fn literal_bytes(literal: &str) -> Option<Vec<u8>> {
    let (is_text, quoted) = match literal.strip_prefix('b') {
        Some(quoted) => (false, quoted),
        None => (true, literal),
    };
    let quote = quoted.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let inner = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut bytes = Vec::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        let code = if letter == '\\' { escape(&mut letters)? } else { letter.into() };
        if is_text {
            let mut buffer = [0; 4];
            let letter = char::from_u32(code)?;
            bytes.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes());
        } else {
            bytes.push(u8::try_from(code).ok()?);
        }
    }
    Some(bytes)
}

/// The code of the escape sequence after a backslash.
fn escape(letters: &mut std::str::Chars<'_>) -> Option<u32> {
    let digits = match letters.next()? {
        'n' => return Some('\n'.into()),
        'r' => return Some('\r'.into()),
        't' => return Some('\t'.into()),
        letter @ ('\\' | '\'' | '"') => return Some(letter.into()),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let (number, rest) = letters.as_str().split_at_checked(digits)?;
    *letters = rest.chars();
    u32::from_str_radix(number, 16).ok()
}

/// The largest id: a manifest allows 2^20 tokens.
const ID_MAX: u32 = (1 << 20) - 1;
/// Up to this many labels, linear search is as fast as binary search (measured, 2026-11).
const SCAN_MAX: usize = 8;
/// Characters of a wrong line that are shown.
const EXCERPT_CHARS: usize = 60;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All single bytes, and longer entries as literals of Python.
    fn vocabulary(longer: &[&str]) -> String {
        let singles = (0..256).map(|byte| format!("{} b'\\x{byte:02x}' 1\r\n", byte + 1));
        let longer = longer.iter().zip(257..).map(|(literal, id)| {
            let bytes = literal_bytes(literal).expect("a literal");
            format!("{id} {literal} {}\n", bytes.len())
        });
        singles.chain(longer).collect()
    }

    fn refusal(file: &str) -> String {
        Trie::parse(file.as_bytes()).expect_err("refused").to_string()
    }

    #[test]
    fn the_longest_entry_is_taken() {
        let trie = Trie::parse(vocabulary(&["'ab'", "'abcd'", "' '' '", "'é'"]).as_bytes());
        let trie = trie.expect("a vocabulary");
        let ids = |text: &str| {
            let mut ids = Vec::new();
            trie.encode(text.as_bytes(), &mut ids);
            ids
        };
        // "abc" only begins an entry, so the walk falls back to "ab".
        assert_eq!(ids("abcabcd"), [257, 100, 258]);
        assert_eq!(ids("' '"), [40, 33, 40]);
        assert_eq!(ids(" '' "), [259]);
        assert_eq!(ids("é"), [260]);
        assert!(ids("").is_empty());
        assert_eq!(
            (trie.tokens(), trie.decode(258), trie.decode(0)),
            (261, &b"abcd"[..], &b""[..])
        );
        assert_eq!(trie.decode(261), b"");
    }

    #[test]
    fn literals_are_those_of_python() {
        let read = |literal| literal_bytes(literal);
        assert_eq!(read(r"'a\x00\n\r\t\\\''").as_deref(), Some(&b"a\0\n\r\t\\'"[..]));
        // In text \x denotes a character, in bytes a byte.
        assert_eq!(read(r"'\xe9'").as_deref(), Some("é".as_bytes()));
        assert_eq!(read(r"b'\xe9'").as_deref(), Some(&[0xe9][..]));
        assert_eq!(read(r#""it's\u20ac""#).as_deref(), Some("it's€".as_bytes()));
        for wrong in ["", "a", "'a", "'", "'\\", "'\\q'", r"'\x1'", r"'\ud800'", "b'€'"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wrong_line_is_named() {
        let whole = vocabulary(&[]);
        let with = |line: &str| refusal(&format!("{whole}{line}\n"));
        let message = with("257 'ab' 3");
        assert_eq!(
            message,
            "line 257, \"257 'ab' 3\": its literal has another length than it says"
        );
        assert!(with("257 'ab").contains("it is not `id literal bytes`"));
        assert!(with("0 'ab' 2").contains("its id is not a number from 1"));
        assert!(with("1048576 'ab' 2").contains("its id is not a number from 1"));
        assert!(with("257 ab 2").contains("its literal is not one of Python"));
        assert!(with("257 '' 0").contains("another length"));
        assert!(with("300 'a' 1").contains("an entry comes twice: 300"));
        assert!(with("7 'ab' 2").contains("an id comes twice: 7"));
        let without_a = whole.replace("98 b'\\x61' 1\r\n", "");
        assert!(refusal(&without_a).contains("no entry is the single byte 97"));
        assert!(refusal("").contains("no entry is the single byte 0"));
    }

    proptest! {
        /// Compares with trying every entry, and decodes again.
        #[test]
        fn any_text_is_cut_greedily(text in "[abc]{0,40}") {
            let longer = ["ab", "abc", "abcabc", "bca", "caab", "ccc", "aa"];
            let literals: Vec<_> = longer.iter().map(|entry| format!("'{entry}'")).collect();
            let literals: Vec<_> = literals.iter().map(String::as_str).collect();
            let trie = Trie::parse(vocabulary(&literals).as_bytes()).expect("a vocabulary");
            let mut ids = Vec::new();
            trie.encode(text.as_bytes(), &mut ids);
            let parts: Vec<_> =
                ids.iter().map(|id| String::from_utf8_lossy(trie.decode(*id as usize))).collect();
            prop_assert_eq!(parts.concat(), text.clone());
            let mut rest = text.as_str();
            for part in &parts {
                let known = longer.iter().filter(|entry| rest.starts_with(**entry));
                let longest = known.map(|entry| entry.len()).max().unwrap_or(1);
                prop_assert_eq!(part.len(), longest);
                rest = &rest[part.len()..];
            }
        }
    }
}
