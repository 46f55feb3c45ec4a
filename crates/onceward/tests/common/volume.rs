//! A small disk, to be filled.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A volume of its own, in memory, unmounted with this value. Only root may mount.
pub struct Volume {
    folder: TempDir,
}

impl Volume {
    pub fn mount(megabytes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "none"])
            .arg(folder.path())
            .status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "a test with a full disk mounts one, and needs to be run as root for that"
        );
        Self { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives it to whom something else belongs.
    #[allow(dead_code, reason = "not every test has a server")]
    pub fn belongs_with(&self, other: &Path) {
        let owner = std::fs::metadata(other).unwrap();
        chown(self.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes what room is left.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        let zeros = [0; 4_096];
        while file.write_all(&zeros).is_ok() {}
    }

    /// Gives the room back.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
