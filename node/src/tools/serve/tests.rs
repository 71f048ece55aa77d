//! What the tests of `serve` share.

use intellect_model::tokenizer::Tokenizer;

use super::served::Served;

/// A model whose tokens are bytes. It reads at most `reach` of them at once.
pub(super) fn served(reach: Option<usize>) -> Served {
    let tokenizer = Tokenizer::bytes();
    let known = tokenizer.tokens();
    Served { name: "m".into(), tokenizer, known, reach, ends: vec![256], chat: None, began: 0 }
}
