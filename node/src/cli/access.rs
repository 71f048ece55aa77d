//! `invite …` and `vouch`: the organiser's command line for runs of invited peers and attestations.

use std::{num::NonZeroU64, path::PathBuf};

use clap::{ArgGroup, Args, Subcommand};

use super::{
    number::{from_one, seconds, uses},
    receipts::RunFolderArgs,
};

/// The subcommands of `invite`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum InviteCommand {
    /// Makes an invite, and prints the line that the invited person types
    ///
    /// The line contains a secret: anyone who has it can join, as often as --uses allows. Give each line only
    /// to the person that it is for, on a channel that nobody else reads. An invite made with --for is no
    /// secret: only that peer can use it.
    ///
    /// Its label and public key are noted in invites.toml beside the key, so that it can be revoked; the code
    /// itself is stored nowhere.
    New(InviteNewArgs),
    /// Revokes a peer or an invite, and waits until the run has put this into force
    ///
    /// The signed notice is handed to the members of the run, and takes effect for all of them in the same
    /// epoch. It is also kept beside the manifest, as .notices, from where a bootstrap hands it out.
    Revoke(RevokeArgs),
    /// Admits a peer by its name, also one that was revoked, and waits until the run has put this into force
    ///
    /// No code is needed. What else was revoked with the peer, such as its invite, stays revoked.
    Admit(AdmitArgs),
    /// Lists who was admitted, by which invite and since when, and who was revoked
    ///
    /// The list comes from the receipts in the folder of a node, which may be running: what this node has
    /// committed, without notices that wait for the next epoch. With the organiser's key it also has the invites
    /// that were made and not used yet.
    List(InviteListArgs),
}

/// The arguments of `invite new`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InviteNewArgs {
    /// The organiser's key, from `keygen`
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The manifest of the run that is meant
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: PathBuf,
    /// Invite only this peer, by the name that its node prints
    #[arg(long = "for", value_name = "PEER", conflicts_with_all = ["uses", "expires", "label"])]
    pub(crate) peer: Option<String>,
    /// How many peers may join by it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = uses)]
    pub(crate) uses: u32,
    /// How long it can be used, as in 12h, 7d or 2w, and up to an hour longer, since clocks differ
    /// [default: it does not expire]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) expires: Option<u64>,
    /// The last epoch of the run in which it admits a peer [default: any]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroU64>)]
    pub(crate) until_epoch: Option<NonZeroU64>,
    /// Its label, by which it is revoked: at most 32 letters, digits, dots, underscores, hyphens
    /// [default: invite-1, invite-2 …]
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Option<String>,
    /// Entry point of the run, for the line that is printed; may be given several times
    #[arg(long, value_name = "MULTIADDR")]
    pub(crate) bootstrap: Vec<String>,
}

/// The arguments of `invite revoke`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("whom").required(true))]
pub(crate) struct RevokeArgs {
    /// Revoke this peer, named as in `invite list`, and the invite by which it joined
    #[arg(long, value_name = "PEER", group = "whom")]
    pub(crate) peer: Option<String>,
    /// Revoke this invite: its label, or the digits of its key
    #[arg(long, value_name = "LABEL", group = "whom")]
    pub(crate) invite: Option<String>,
    /// Revoke the peers that joined by this invite as well
    #[arg(long, conflicts_with = "peer")]
    pub(crate) and_admitted: bool,
    /// Folder of a node of the run, whose receipts have to name the peer [default: $XDG_DATA_HOME/intellect-node]
    #[arg(long, value_name = "DIR", conflicts_with = "invite")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Revoke the peer although no receipt names it, as one that has not come yet
    #[arg(long, conflicts_with = "invite")]
    pub(crate) unseen: bool,
    #[command(flatten)]
    pub(crate) update: UpdateArgs,
}

/// The arguments of `invite admit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdmitArgs {
    /// The peer to admit, by the name that its node prints
    #[arg(long, value_name = "PEER")]
    pub(crate) peer: String,
    #[command(flatten)]
    pub(crate) update: UpdateArgs,
}

/// The arguments of `invite list`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InviteListArgs {
    /// The organiser's key, beside which its invites are noted: lists all of them, with how long they can be used
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) of: RunFolderArgs,
}

/// The signer of a membership notice, and where the notice is handed in.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpdateArgs {
    /// The organiser's key, from `keygen`
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The manifest of the run that is meant
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: PathBuf,
    /// Entry point of the run: the address of its bootstrap or of a member; may be given several times
    #[arg(long, value_name = "MULTIADDR", required = true)]
    pub(crate) bootstrap: Vec<String>,
    /// How long to wait until the notice is in force
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = seconds)]
    pub(crate) wait: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct VouchArgs {
    /// The organiser's key, from `keygen`
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    #[command(flatten)]
    pub(crate) of: RunFolderArgs,
    /// Attest the state after this epoch [default: the last one that the folder has]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroU64>)]
    pub(crate) epoch: Option<NonZeroU64>,
    /// Keep the notice beside this manifest of the same run, as .notices, from where a bootstrap hands it out
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Entry point of the run; may be given several times [default: where the node has met others]
    #[arg(long, value_name = "MULTIADDR")]
    pub(crate) bootstrap: Vec<String>,
}
