//! What needs no network: `keygen`, `manifest new` and `show`, `eval`, `sample`.

use std::{
    io::{self, Write},
    path::Path,
};

use crate::{
    identity::{Identity, IdentityError},
    name::PeerName,
};

/// Why one of these commands did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OfflineError {
    /// A key cannot be made or read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Makes a key at `path` and says whose it is.
pub(crate) fn keygen(path: &Path, out: &mut dyn Write) -> Result<(), OfflineError> {
    let identity = Identity::random().map_err(OfflineError::Random)?;
    identity.create(path)?;
    writeln!(out, "wrote {} (keep it secret, keep a copy)", path.display())?;
    writeln!(out, "peer       {}", PeerName::from(identity.peer()))?;
    writeln!(out, "organiser  {}", identity.peer().hex())?;
    writeln!(out, "founder    {}", identity.founder())?;
    Ok(())
}
