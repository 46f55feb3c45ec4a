//! A small volume that can be full.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::trouble::{Trouble, while_doing};

/// Room as long as it is not full.
const ROOM: &str = "size=8g,mode=0755";

/// A volume in memory, mounted in a folder of ours; unmounted when dropped.
#[derive(Debug)]
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Mounts one, where that is permitted.
    pub(super) fn mount(at: &Path) -> Result<Self, Trouble> {
        std::fs::create_dir_all(at).map_err(while_doing("make a folder"))?;
        let room = std::ffi::CString::new(ROOM).map_err(while_doing("mount"))?;
        let mounted = mount(
            "onceward-torture",
            at,
            "tmpfs",
            MountFlags::empty(),
            room.as_c_str(),
        );
        mounted.map_err(while_doing("mount a small volume"))?;
        Ok(Self(at.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// No more than `spare` bytes are left from now on.
    pub(super) fn fill(&self, spare: u64) -> Result<(), Trouble> {
        let stat = statvfs(&self.0).map_err(while_doing("look at the volume"))?;
        let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
        self.resize(&format!("size={}", used + spare.max(stat.f_frsize)))
    }

    /// There is room again.
    pub(super) fn free(&self) -> Result<(), Trouble> {
        self.resize("size=8g")
    }

    fn resize(&self, data: &str) -> Result<(), Trouble> {
        let resized = mount_remount(&self.0, MountFlags::empty(), data);
        resized.map_err(while_doing("change the size of the volume"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
