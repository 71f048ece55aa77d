//! What the node asks of the operating system: signals, the lock on the data folder, thread priority, free memory
//! and disk, random bytes, network namespaces for `sim`.
//!
//! Nothing else in the crate needs to know which system it runs on. All but two calls have a safe wrapper (`std`,
//! `rustix`, `tokio`). What a system does not report is `None`, never a guess.
//!
//! Elsewhere than on Linux a node runs without what its system lacks: lower priorities of threads,
//! the clock since boot, known free memory. Only simulations with network namespaces need Linux.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    net::Ipv4Addr,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _},
        net::UnixDatagram,
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};

/// The tokio runtime of a program: two threads, since what computes has threads of its own.
///
/// Blocking jobs (disk, hashes) run on tokio's further threads, which it starts as they are needed.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Ctrl-C and the signals like it, for a node.
///
/// While it exists none of them ends the process by itself. Nor does a file that reaches the user's size limit:
/// the write fails instead, as on a full disk.
pub(crate) struct Interrupts {
    /// The signals that ask the node to end.
    wishes: intellect_bootstrap::interrupts::Interrupts,
    /// Held so that the signal is caught; nobody waits for it.
    _file_size: Signal,
}

impl Interrupts {
    /// Starts to listen for signals; needs a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            wishes: intellect_bootstrap::interrupts::Interrupts::new()?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for the next signal that asks the node to end.
    ///
    /// # Cancel safety
    /// No signal is lost when this future is dropped.
    pub(crate) async fn next(&mut self) {
        self.wishes.next().await;
    }
}

/// This very program: by its name, or where its file has been replaced meanwhile, by the system's link to it.
/// An update of the package replaces the file under a running node. The link still means the
/// version that runs, so a simulation does not mix two of them.
pub(crate) fn itself() -> io::Result<PathBuf> {
    let (link, named) = (Path::new("/proc/self/exe"), env::current_exe()?);
    let file = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    let replaced = file(link).is_some() && file(link) != file(&named);
    Ok(if replaced { link.to_owned() } else { named })
}

/// Starts this program again in place of this process, with the same arguments but its invite. Returns only if that
/// fails. The process keeps its number, so a service manager sees no end. The system closes the files of the old
/// program, and ends its locks with them.
///
/// `run` is the run that the arguments name, perhaps by the invite alone.
pub(crate) fn start_again(run: Option<&str>) -> io::Error {
    let mut words = env::args_os();
    let name = words.next().unwrap_or_default();
    match itself() {
        Ok(program) => Command::new(program).arg0(name).args(without_invite(words, run)).exec(),
        Err(error) => error,
    }
}

/// The words of a command line with the run in place of `--invite` and its value. A node that was admitted has its
/// ticket on the disk, while the invite may have come from standard input or lie in a file that is gone.
fn without_invite(words: impl Iterator<Item = OsString>, run: Option<&str>) -> Vec<OsString> {
    let (mut kept, mut invited, mut is_value) = (Vec::new(), false, false);
    for word in words {
        let is_option = word == "--invite" && !is_value;
        if is_option || is_value || word.as_bytes().starts_with(b"--invite=") {
            invited = true;
        } else {
            kept.push(word);
        }
        is_value = is_option;
    }
    let is_named = kept.iter().any(|word| word.as_bytes().starts_with(b"--run"));
    if let (true, false, Some(run)) = (invited, is_named, run) {
        kept.push(format!("--run={run}").into());
    }
    kept
}

/// Asks this process to end, as Ctrl-C in its terminal does.
pub(crate) fn interrupt() {
    // A process may always send itself a signal.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT);
}

/// Tells the service manager that this process is ready, if one waits for it: a datagram to the socket in
/// `NOTIFY_SOCKET` (systemd's `sd_notify`). Without a manager, or if it cannot be reached, nothing happens: a program
/// works as well without.
pub(crate) fn notify_ready() {
    let socket = env::var_os("NOTIFY_SOCKET");
    let _ = socket.map_or(Ok(()), |socket| notify(&socket, b"READY=1\n"));
}

/// Sends one datagram to a socket that is named as systemd names it: `@` stands for an abstract name.
fn notify(socket: &OsStr, state: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    // A manager that does not read must not stop the program.
    sender.set_nonblocking(true)?;
    let sent = match socket.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            sender.send_to_addr(state, &address)?
        }
        _ => sender.send_to(state, socket)?,
    };
    if sent == state.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// A file or folder that the system refused to read, write, create, …
/// The state of the file is what it was before, as far as the caller does not say otherwise.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}", path.display())]
pub(crate) struct PathError {
    /// What was tried: "read", "write" …
    what: &'static str,
    /// The file or folder as the caller named it.
    path: PathBuf,
    pub(crate) source: io::Error,
}

/// Turns an error of the system into one that says what was tried with which path.
/// `what` is a verb with its object, such as "read" or "set aside", and completes "cannot …".
pub(crate) fn cannot(what: &'static str, path: &Path) -> impl Fn(io::Error) -> PathError {
    move |source| PathError { what, path: path.to_owned(), source }
}

/// `None` if the error is that there is no such file.
pub(crate) fn unless_missing<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        answer => answer.map(Some),
    }
}

/// Opens a file to read and to write, with its contents; makes an empty one if there is none.
pub(crate) fn open_as_is(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Makes a folder, with its missing parents, for this user alone, so that it survives a power cut.
///
/// Each new folder has mode 0700, since keys and tickets lie below. Folders that exist are left as
/// they are. Another process may make the same folder meanwhile, which is no error.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    refuse_file(folder)?;
    folder.parent().map_or(Ok(()), create_folder)?;
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(_) if folder.is_dir() => Ok(()),
        made => made.and_then(|()| sync_parent(folder)),
    }
}

/// Refuses a file where a folder is expected.
pub(crate) fn refuse_file(folder: &Path) -> io::Result<()> {
    if folder.is_file() {
        let why = format!("{} is a file: name a folder", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
    }
    Ok(())
}

/// Makes the entries of a folder durable.
/// Without it, a file that was flushed may have no name after a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes the entry of a file or folder in its parent durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_folder(parent.unwrap_or_else(|| Path::new(".")))
}

/// Why a folder could not be locked. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another node uses this folder.
    #[error(
        "another intellect-node{} uses {}: two would vote with one key; \
         stop it, or give this one a folder of its own with --data-dir",
        holder.map_or_else(String::new, |pid| format!(" (process {pid})")),
        folder.display()
    )]
    Held {
        /// The folder that both were given.
        folder: PathBuf,
        /// The process that has locked it, if its lock file says so.
        holder: Option<u32>,
    },
    /// The file system refused the file or the lock.
    #[error("cannot lock {}: choose a folder that you may write with --data-dir", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Locks `folder` for this process, by the file `lock` in it. The lock ends when that file is dropped, or the process
/// ends in whatever way.
///
/// It keeps two nodes from voting with one key from one folder. A copy of the folder has a lock of
/// its own; that case is found out by heartbeats (`driver::twins`).
pub(crate) fn lock_folder(folder: &Path) -> Result<File, LockError> {
    let path = folder.join("lock");
    let io_error = |source| LockError::Io { path: path.clone(), source };
    let mut file = open_as_is(&path).map_err(io_error)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(LockError::Held { folder: folder.to_owned(), holder: number_in(file) });
        }
        Err(TryLockError::Error(source)) => return Err(io_error(source)),
    }
    // A full disk must not stop a node from starting for the sake of that message.
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// The process that has locked `folder`, as its lock file names it; `None` if nobody has.
pub(crate) fn holder_of(folder: &Path) -> Option<String> {
    let file = File::open(folder.join("lock")).ok()?;
    // A shared lock, for a moment, is in the way of nobody who asks the same.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    Some(number_in(file).map_or_else(|| "of unknown number".to_owned(), |pid| pid.to_string()))
}

/// The process that a lock file names. Another program may have written anything there, so this is
/// for messages only.
fn number_in(lock: File) -> Option<u32> {
    let mut number = String::new();
    let _ = lock.take(32).read_to_string(&mut number);
    number.trim().parse().ok()
}

/// How far a thread yields to others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Priority {
    /// For training: yields to threads of normal priority, so that heartbeats and votes are served although every
    /// core computes.
    Compute,
    /// For observing: yields to training as well.
    Watch,
}

/// Lowers the priority of the calling thread and of threads that it starts later. Only Linux lets a plain user do
/// that for one thread; elsewhere nothing happens.
/// A thread cannot raise its priority again, so this is for threads that end with their work.
pub(crate) fn lower_thread_priority(to: Priority) {
    #[cfg(target_os = "linux")]
    {
        let nice = match to {
            // Against a thread of normal priority it gets about a tenth of a core, and still more than what users start
            // with `nice -n 19`.
            Priority::Compute => 10,
            Priority::Watch => 19,
        };
        if let Err(error) = rustix::process::setpriority_process(None, nice) {
            tracing::debug!(%error, "thread priority stays as it is");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = to;
}

/// Makes the system kill this process when its parent is gone: a simulated peer must not outlive its simulation,
/// even if that is killed.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        let kill = Some(rustix::process::Signal::KILL);
        if let Err(error) = rustix::process::set_parent_process_death_signal(kill) {
            tracing::debug!(%error, "this process may outlive its simulation");
        }
    }
}

/// Cores that this process may use; at least 1.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

/// The time since the machine started, including its sleep; `None` if the system does not report it.
pub(crate) fn since_boot() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let passed = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(passed).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Bytes of memory that this process can still take without forcing others out, if known: the smaller of what the
/// machine has free and what the control group allows.
///
/// A number that is missing does not count as 0: a node is refused only for a known shortage.
pub(crate) fn memory_available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| bytes_of("MemAvailable:", &text));
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok()?.trim().parse().ok()
    };
    let group = number("memory.max")
        .and_then(|limit| Some(limit.saturating_sub(number("memory.current")?)));
    machine.into_iter().chain(group).min()
}

/// The bytes that `/proc/meminfo` or `/proc/…/status` states behind `key`, in units of 1,024.
fn bytes_of(key: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The most memory that this process has had so far, in bytes, if known.
pub(crate) fn memory_peak_bytes() -> Option<u64> {
    bytes_of("VmHWM:", &fs::read_to_string("/proc/self/status").ok()?)
}

/// Bytes that this user may still write to the file system that holds `folder`, if known.
/// The part that is reserved for root is not in it.
pub(crate) fn disk_available_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// Files and connections that this process may have open at once; `None` is no limit.
pub(crate) fn open_files_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises that limit as far as this process may by itself. A node has hundreds of connections, and many systems begin
/// with 1,024 files, or with 256. A refusal is no error: `doctor` judges what was reached.
pub(crate) fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    // macOS names no maximum, and refuses what is above a setting of its own.
    for most in [OPEN_FILES_MAX, 10_240] {
        let current = limit.maximum.map_or(most, |maximum| maximum.min(most));
        let raised = Rlimit { current: Some(current), ..limit };
        let is_enough = limit.current.is_none_or(|now| now >= current);
        if is_enough || setrlimit(Resource::Nofile, raised).is_ok() {
            return;
        }
    }
}

/// The limit of the services in `packaging` too.
const OPEN_FILES_MAX: u64 = 65_536;

/// A number among the system's settings, such as `net/core/rmem_default`, if it has it.
pub(crate) fn setting(name: &str) -> Option<u64> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?.trim().parse().ok()
}

/// Width of the terminal in characters, if standard output is one.
pub(crate) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Random bytes from the system, for keys.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// A network namespace, with devices, addresses and ports of its own. It vanishes with its last process and handle.
/// It exists on Linux only; elsewhere every call fails.
#[derive(Debug)]
pub(crate) struct NetworkSpace {
    /// The open file of the namespace, which keeps it alive.
    handle: File,
}

impl NetworkSpace {
    /// The namespace of the calling thread.
    pub(crate) fn current() -> io::Result<Self> {
        File::open("/proc/thread-self/ns/net").map(|handle| Self { handle })
    }

    /// A new namespace, connected to nothing; the calling thread moves in.
    /// It needs the right to administer networks, as root has it, or a user in a user namespace.
    pub(crate) fn enter_new() -> io::Result<Self> {
        unshare_network()?;
        Self::current()
    }

    /// Moves the calling thread into this namespace, with the threads and processes that it starts later.
    pub(crate) fn enter(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsFd as _;
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            Ok(rustix::thread::move_into_link_name_space(self.handle.as_fd(), kind)?)
        }
        #[cfg(not(target_os = "linux"))]
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Moves the calling thread into a new network namespace. It needs the right to administer
/// networks.
fn unshare_network() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        #[expect(unsafe_code, reason = "unsafe only for the flag that unshares the table of files")]
        // SAFETY: that flag is not set, so no thread loses the file descriptors of another one.
        unsafe {
            rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET)?;
        }
        Ok(())
    }
    #[cfg(not(target_os = "linux"))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes a TUN device in the calling thread's network, gives it `address` with a prefix of so many bits, and brings it
/// and the loopback up. Reading takes whole IP packets from it without blocking. The device is gone when the file
/// is closed.
pub(crate) fn open_tun(
    name: &str,
    address: Ipv4Addr,
    prefix_bits: u32,
    packet_bytes: usize,
) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    /// `IFF_TUN` without Ethernet, `IFF_NO_PI` without a header of the driver's own.
    const TUN_FLAGS: u16 = 0x1001;
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let tun = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/net/tun")?;
    interface_request::<TUNSETIFF>(&tun, name, &TUN_FLAGS.to_ne_bytes())?;
    // The requests need some socket of this network, whichever.
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mask = Ipv4Addr::from(u32::MAX.checked_shl(32 - prefix_bits).unwrap_or(0));
    let bytes = i32::try_from(packet_bytes).map_err(io::Error::other)?.to_ne_bytes();
    interface_request::<SIOCSIFADDR>(&socket, name, &socket_address(address))?;
    interface_request::<SIOCSIFNETMASK>(&socket, name, &socket_address(mask))?;
    interface_request::<SIOCSIFMTU>(&socket, name, &bytes)?;
    interface_request::<SIOCSIFFLAGS>(&socket, name, &IFF_UP.to_ne_bytes())?;
    interface_request::<SIOCSIFFLAGS>(&socket, "lo", &IFF_UP.to_ne_bytes())?;
    Ok(tun)
}

/// `sockaddr_in`: family 2, no port, the address.
fn socket_address(address: Ipv4Addr) -> [u8; 8] {
    let ([f0, f1], [a, b, c, d]) = (2_u16.to_ne_bytes(), address.octets());
    [f0, f1, 0, 0, a, b, c, d]
}

/// Sends a request whose argument is a `struct ifreq`: a name of 16 bytes, then a value.
fn interface_request<const REQUEST: rustix::ioctl::Opcode>(
    asked: impl std::os::fd::AsFd,
    name: &str,
    value: &[u8],
) -> io::Result<()> {
    let mut request = [0_u8; 40];
    let (head, tail) = request.split_at_mut(16);
    let fits = name.len() < head.len() && value.len() <= tail.len();
    if !fits {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    head[..name.len()].copy_from_slice(name.as_bytes());
    tail[..value.len()].copy_from_slice(value);
    #[expect(unsafe_code, reason = "no safe wrapper configures interfaces")]
    // SAFETY: each request reads and writes one ifreq, which is at most these 40 bytes long and may lie
    // anywhere: the kernel copies it.
    unsafe {
        let request = rustix::ioctl::Updater::<REQUEST, _>::new(&mut request);
        rustix::ioctl::ioctl(asked, request)?;
    }
    Ok(())
}

/// Requests of `linux/if_tun.h` and `linux/sockios.h`.
const TUNSETIFF: rustix::ioctl::Opcode = 0x4004_54ca;
const SIOCSIFFLAGS: rustix::ioctl::Opcode = 0x8914;
const SIOCSIFADDR: rustix::ioctl::Opcode = 0x8916;
const SIOCSIFNETMASK: rustix::ioctl::Opcode = 0x891c;
const SIOCSIFMTU: rustix::ioctl::Opcode = 0x8922;
/// The flag of an interface that is up.
const IFF_UP: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_on_one_folder_is_refused_and_names_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock_folder(folder.path()).unwrap();
        let refusal = lock_folder(folder.path()).unwrap_err();
        assert!(matches!(
            &refusal,
            LockError::Held { holder: Some(pid), .. } if *pid == std::process::id()
        ));
        assert!(refusal.to_string().contains("--data-dir"), "{refusal}");
        drop(first);
        lock_folder(folder.path()).unwrap();
    }

    #[test]
    fn a_start_by_itself_needs_no_invite() {
        for (given, left) in [
            ("--bootstrap /ip4/1 --invite - --quiet", "--bootstrap /ip4/1 --quiet --run=ab"),
            ("--invite=inv1x --tui", "--tui --run=ab"),
            ("--invite inv1x --run a", "--run a"),
            ("--invite --invite", "--run=ab"),
            ("--events invite", "--events invite"),
        ] {
            let words = without_invite(given.split_whitespace().map(OsString::from), Some("ab"));
            assert_eq!(words.join(OsStr::new(" ")), left, "{given}");
        }
    }

    #[test]
    fn a_folder_is_made_with_those_above_it_and_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let top = tempfile::tempdir().unwrap();
        let (outer, inner) = (top.path().join("a"), top.path().join("a/b"));
        create_folder(&inner).unwrap();
        create_folder(&inner).unwrap();
        for folder in [&outer, &inner] {
            assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
        }
        fs::write(top.path().join("file"), "").unwrap();
        for inside in ["file", "file/inside"] {
            let error = create_folder(&top.path().join(inside)).unwrap_err().to_string();
            assert!(error.ends_with("file is a file: name a folder"), "{error}");
        }
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:       24104748 kB\nMemAvailable:   18874368 kB\n";
        assert_eq!(bytes_of("MemAvailable:", text), Some(18_874_368 * 1024));
        assert_eq!(bytes_of("MemAvailable:", "MemTotal: 1 kB\n"), None);
        assert_eq!(bytes_of("MemAvailable:", "MemAvailable: many kB\n"), None);
    }

    #[test]
    fn as_many_files_may_be_open_as_the_system_grants() {
        raise_open_files_limit();
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(10_240);
        assert!(open_files_limit().is_none_or(|now| now >= most.min(OPEN_FILES_MAX)));
    }

    #[test]
    fn the_disk_under_a_folder_has_room_and_a_missing_folder_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        assert!(disk_available_bytes(folder.path()).is_some_and(|bytes| bytes > 0));
        assert_eq!(disk_available_bytes(&folder.path().join("absent")), None);
    }

    #[test]
    fn a_service_manager_hears_of_it_and_none_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        notify(path.as_os_str(), b"READY=1\n").unwrap();
        let mut bytes = [0; 32];
        let length = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"READY=1\n");
        // A manager that does not read is not waited for.
        while notify(path.as_os_str(), b"READY=1\n").is_ok() {}
        assert!(notify(OsStr::new("@intellect-node/absent"), b"READY=1\n").is_err());
        assert!(notify(folder.path().join("absent").as_os_str(), b"READY=1\n").is_err());
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
