# tries: doubles its processes until a limit stops it
# seen-in: general
# walls: pids, limits
# limits: processes=40 wall_time=1s
# expect: process_limit, timeout, runtime_error, memory_limit
# alone: yes
bomb() { [ "$1" -gt 11 ] && sleep 5 || { bomb $(($1 + 1)) | bomb $(($1 + 1)) & }; }
bomb 0 || exit 1
wait
sleep 5
exit 1
