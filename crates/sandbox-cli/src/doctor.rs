//! `sandbox-run doctor`: placeholder
pub(crate) fn doctor(_json: bool) -> u8 {
    0
}
