//! The tokenizer that a token file was made with, by its form and its file.

/// The tokenizer that a token file was made with. Two files fit together if all of it is equal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vocabulary {
    /// The form of the tokenizer's file, if it has one.
    pub scheme: Scheme,
    /// BLAKE3 of the tokenizer's file; zeros where there is none.
    pub digest: [u8; 32],
    /// How many different tokens it has, 2–2^20: one more than the greatest.
    pub tokens: usize,
    /// The token that begins each document; below `tokens`.
    pub bos: u32,
}

/// The forms that a tokenizer of documents can have. A token file holds the number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// One token per byte, and one that begins a document; there is no file.
    Bytes = 2,
    /// A vocabulary file of RWKV World.
    Rwkv = 3,
    /// A `tokenizer.json` of Hugging Face.
    HuggingFace = 4,
}

/// How many bytes a token takes in a token file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Width {
    /// Two bytes, for tokens up to 65,535.
    Two = 2,
    /// Four bytes, for tokens up to 2^32 − 1.
    Four = 4,
}

impl Vocabulary {
    /// The vocabulary of bytes: the first number that is no byte begins a document.
    pub const BYTES: Self = Self { scheme: Scheme::Bytes, digest: [0; 32], tokens: 257, bos: 256 };
}

impl Scheme {
    /// Every form, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Bytes, Self::Rwkv, Self::HuggingFace];

    /// The form of a tokenizer's file: Hugging Face's is a JSON object, a vocabulary begins with a
    /// number.
    #[must_use]
    pub fn of_file(file: &[u8]) -> Self {
        if file.trim_ascii_start().first() == Some(&b'{') { Self::HuggingFace } else { Self::Rwkv }
    }
}

impl Width {
    /// The smallest width that holds so many different tokens.
    #[must_use]
    pub fn of(tokens: usize) -> Self {
        if tokens <= 1 << 16 { Self::Two } else { Self::Four }
    }

    /// Reads tokens of this width, little endian. Bytes at the end that do not make a whole token
    /// are left out.
    pub(crate) fn tokens(self, bytes: &[u8]) -> impl Iterator<Item = u32> {
        let token =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        bytes.chunks_exact(self as usize).map(token)
    }
}
