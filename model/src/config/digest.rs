//! BLAKE3 digests as a manifest writes them.

use intellect_table::Pattern;

/// A digest as a manifest writes it, and as people read it.
pub(crate) fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

/// Reads a digest; zeros where there is none.
pub(super) fn digest_of(hex: &str) -> [u8; 32] {
    blake3::Hash::from_hex(hex).map_or([0; 32], Into::into)
}

/// The form of a digest. Upper case would name the same bytes, but a value has one form.
pub(super) const DIGEST: Pattern = Pattern {
    form: "64 lower-case hex digits",
    fits: |text| blake3::Hash::from_hex(text).is_ok_and(|hash| hash.to_hex().as_str() == text),
};
