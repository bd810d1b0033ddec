# Functions that the scripts here share: build the root of an emulated machine, boot it, follow its log. Sourced, not run.
# The caller sets `work` (a directory for kernel, root and log) and `limit` (seconds until the machine is ended).
root=$work/root

add() { # copies files into the root, with the libraries they need
    local file
    for file in "$@" $(for f in "$@"; do ldd "$f" 2>/dev/null | grep -o '/[^ ]*' || true; done); do
        file=$(readlink -f "$(dirname "$file")")/$(basename "$file")
        mkdir -p "$root$(dirname "$file")"
        cp -n "$file" "$root$file" 2>/dev/null || true
    done
}

# A root with Debian's Python, a shell and a few tools, copied from this host.
base_root() {
    local tool module
    rm -rf "$root"
    mkdir -p "$root"/{dev,proc,sys,tmp,run,root,etc,usr/bin,usr/lib,usr/sbin,var/tmp,newroot}
    ln -s usr/bin "$root/bin"; ln -s usr/sbin "$root/sbin"; ln -s usr/lib "$root/lib"; ln -s usr/lib64 "$root/lib64"
    for tool in find sed sh bash env cat ls echo sleep true head grep wc sort touch ln mkdir mount cp mv rm chmod chown mkfifo truncate kill readlink dirname tail cut test uname setpriv unshare script id poweroff switch_root tr xargs; do
        add "$(PATH=/usr/bin:/usr/sbin type -P "$tool")"
    done
    # The C library loads the second when a thread ends.
    add /usr/bin/python3.11 /usr/lib/x86_64-linux-gnu/libgcc_s.so.1
    ln -sf python3.11 "$root/usr/bin/python3"
    mkdir -p "$root/usr/lib/python3.11"
    cp -r /usr/lib/python3.11/. "$root/usr/lib/python3.11/"
    rm -rf "$root"/usr/lib/python3.11/{test,idlelib,tkinter,turtledemo,config-*,ensurepip,lib2to3}
    for module in "$root"/usr/lib/python3.11/lib-dynload/*.so; do
        add $(ldd "$module" 2>/dev/null | grep -o '/[^ ]*' || true)
    done
    cp /etc/ld.so.cache "$root/etc/"
    printf 'root:x:0:0::/root:/bin/sh\n' > "$root/etc/passwd"
}

# Builds the initial RAM disk. The machine runs /tests of the root, from another file system than the initial one, where
# the kernel does not allow pivot_root.
pack() {
    cat > "$root/init" <<'SCRIPT'
#!/bin/bash
export PATH=/usr/bin:/usr/sbin
printf '\nvm: up\n'
mount -t tmpfs -o size=1500m root /newroot
for entry in /*; do [ "$entry" = /newroot ] || cp -a "$entry" /newroot/; done
exec switch_root /newroot /tests
SCRIPT
    chmod +x "$root/init" "$root/tests"
    # Not compressed, because the emulated machine would be slow to decompress it.
    (cd "$root" && find . | cpio --quiet -o -H newc) > "$work/initrd"
    echo "vm: booting $(du -h "$work/initrd" | cut -f1) of initial root" >&2
}

machine=
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true' EXIT
boot() {
    local second
    : > "$work/log"
    # A machine with more than one clock: the kernel calibrates the CPU's clock against the others. A `microvm` has only
    # the interval timer, with which the calibration fails whenever the host is busy; the kernel then waits for ever for
    # ticks that are not counted yet.
    timeout "$limit" qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -smp 2 -m 3G -nodefaults -no-user-config \
        -nographic -no-reboot -serial "file:$work/log" -kernel "$work/vmlinuz" -initrd "$work/initrd" \
        -append "console=ttyS0 quiet panic=-1 reboot=t" </dev/null &
    machine=$!
    for second in $(seq 90); do
        sleep 1
        if grep -q '^vm: up' "$work/log"; then return 0; fi
        if ! kill -0 "$machine" 2>/dev/null; then break; fi
    done
    echo "vm: not up after $second seconds" >&2
    tail -n 5 "$work/log" >&2
    kill "$machine" 2>/dev/null || true
    wait "$machine" || true
    return 1
}

# Boots the machine and shows its log until it is off. Fails unless the machine reports success.
follow() {
    local failed=0
    # A machine that hangs before any test is loaded is not a test failure.
    until boot; do
        failed=$((failed + 1))
        if [ "$failed" -ge 3 ]; then exit 1; fi
    done
    tail -n +1 -f --pid "$machine" "$work/log" | sed -u 's/\r$//; /^vm: report$/,/^vm: end of report$/d'
    wait "$machine" || true
    machine=
    echo "vm: $SECONDS seconds; boots that failed: $failed"
}
