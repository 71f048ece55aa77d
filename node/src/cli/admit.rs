//! `invite …`: the command line of whoever decides who may take part in a run of invited peers.

use std::{num::NonZeroU64, path::PathBuf};

use clap::{ArgGroup, Args, Subcommand};

use super::number::{from_one, seconds, uses};

/// What `invite` can do.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum InviteCommand {
    /// Makes an invite, and prints the line that whoever is invited types
    ///
    /// The line holds a secret: whoever has it can join, as often as --uses says. Hand each to the person
    /// whom it is for, by a way that nobody else reads. One made with --for is no secret: it is good for
    /// that peer alone.
    ///
    /// What was made is noted in invites.toml beside the key, by label and public key, so that it can be
    /// revoked; the code itself is kept nowhere.
    New(InviteNewArgs),
    /// Revokes a peer, or an invite, and waits until the run has taken it over
    ///
    /// The notice of it is handed to the members of the run, and holds for all of them from the same epoch on. It
    /// also lies beside the manifest then, as .notices, from where a bootstrap hands it out.
    Revoke(RevokeArgs),
    /// Lets a peer in by its name, also one that was revoked, and waits until the run has taken it over
    ///
    /// It needs no code. What else was revoked with it, as the invite by which it came, stays so.
    Admit(AdmitArgs),
    /// Lists who is in, through which invite, since when, and who was revoked
    ///
    /// It is read from the receipts in the folder of a node, which may be running: what this node has
    /// committed, and nothing that only waits for the next epoch.
    List(InviteListArgs),
}

/// What can be typed behind `invite new`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InviteNewArgs {
    /// The organiser's key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The run's manifest
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: PathBuf,
    /// Invite this peer alone, as its node names itself
    #[arg(long = "for", value_name = "PEER", conflicts_with_all = ["uses", "expires", "label"])]
    pub(crate) peer: Option<String>,
    /// How many peers may come by it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = uses)]
    pub(crate) uses: u32,
    /// How long it can be used, as in 12h, 7d or 2w [default: without end]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) expires: Option<u64>,
    /// The last epoch of the run that lets in by it [default: any]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroU64>)]
    pub(crate) until_epoch: Option<NonZeroU64>,
    /// What it is called, to revoke it by: at most 32 letters, digits, dots, underscores, hyphens
    /// [default: invite-1, invite-2 …]
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Option<String>,
    /// Where the run is entered, for the line that is printed; may be given several times
    #[arg(long, value_name = "MULTIADDR")]
    pub(crate) bootstrap: Vec<String>,
}

/// What can be typed behind `invite revoke`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("whom").required(true))]
pub(crate) struct RevokeArgs {
    /// This peer is out, as `invite list` names it, and nobody else comes by the invite by which it came
    #[arg(long, value_name = "PEER", group = "whom")]
    pub(crate) peer: Option<String>,
    /// Nobody comes by this invite any more: its label, or the digits of its key
    #[arg(long, value_name = "LABEL", group = "whom")]
    pub(crate) invite: Option<String>,
    /// Those who came by it are out as well
    #[arg(long, conflicts_with = "peer")]
    pub(crate) and_admitted: bool,
    #[command(flatten)]
    pub(crate) update: UpdateArgs,
}

/// What can be typed behind `invite admit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdmitArgs {
    /// This peer is in, as its node names itself
    #[arg(long, value_name = "PEER")]
    pub(crate) peer: String,
    #[command(flatten)]
    pub(crate) update: UpdateArgs,
}

/// What can be typed behind `invite list`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InviteListArgs {
    /// Folder of a node of the run, which may be running [default: $XDG_DATA_HOME/intellect-node]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Which run of that folder: the beginning of its id
    #[arg(long, value_name = "PREFIX")]
    pub(crate) run: Option<String>,
}

/// Who decides, and where the run is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpdateArgs {
    /// The organiser's key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The run's manifest
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: PathBuf,
    /// Where the run is entered: the address of its bootstrap or of a member; may be given several times
    #[arg(long, value_name = "MULTIADDR", required = true)]
    pub(crate) bootstrap: Vec<String>,
    /// How long to wait until it is in force
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = seconds)]
    pub(crate) wait: u64,
}

/// What can be typed behind `vouch`.
#[derive(Clone, Debug, Args)]
pub(crate) struct VouchArgs {
    /// The organiser's key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Folder of a node of the run, which may be running [default: $XDG_DATA_HOME/intellect-node]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Which run of that folder: the beginning of its id
    #[arg(long, value_name = "PREFIX")]
    pub(crate) run: Option<String>,
    /// Attest the state after this epoch [default: the last one that the folder has]
    #[arg(long, value_name = "N", value_parser = from_one::<NonZeroU64>)]
    pub(crate) epoch: Option<NonZeroU64>,
    /// Keep the notice beside this manifest, as .notices, from where a bootstrap hands it out
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Where the run is entered; may be given several times [default: where the node has met others]
    #[arg(long, value_name = "MULTIADDR")]
    pub(crate) bootstrap: Vec<String>,
}
