#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Who may include whom, and which file alone may use a foreign API.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash

# includes PATTERN FOLDER...: the lines below those folders that include what matches.
includes()
{
	local pattern=$1
	shift
	grep -rnE --include='*.[ch]' "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" "$@"
}

# only PATTERN FOLDER FILE...: uses of what matches in any but the named files.
uses_outside()
{
	local pattern=$1 dirs=$2
	shift 2
	# shellcheck disable=SC2086 # a list of folders
	grep -rnE --include='*.[ch]' "$pattern" $dirs | grep -vE "^($(IFS='|'; echo "$*")):|:[0-9]+:[[:space:]]*/?\*"
}

tap_empty "proto includes neither daemon nor client" "$(includes '(\.\./)*(daemon|client|tests)/' proto)"
tap_empty "daemon does not include client" "$(includes '(\.\./)*(client|tests)/' daemon)"
tap_empty "client does not include daemon" "$(includes '(\.\./)*(daemon|tests)/' client)"
tap_empty "the soft data path does not include the ABI face or verbsctl" "$(includes 'client/(abi|ctl)/' client/soft)"
tap_empty "no include by way of a parent folder" "$(includes '\.\.?/' proto daemon client tests)"
tap_empty "no .c file is included" "$(includes '[^>\"]*\.c[>\"]' proto daemon client tests)"
tap_empty "libevent is used in daemon/loop.c only" \
	"$(includes 'event2?/|event\.h' proto daemon client | grep -v '^daemon/loop\.c:')"
tap_empty "libsystemd is used in daemon/notify.c, the log sink and main.c only" \
	"$(includes 'systemd/' proto daemon client | grep -vE '^daemon/(notify|log[a-z_]*|main)\.c:')"
tap_empty "libsmartcols is used in client/ctl only" \
	"$(includes 'libsmartcols' proto daemon client | grep -v '^client/ctl/')"
tap_empty "sendmsg and recvmsg are called in proto/sock.c only" \
	"$(uses_outside '\b(sendmsg|recvmsg|sendmmsg|recvmmsg)[[:space:]]*\(' 'proto daemon client' proto/sock.c)"
tap_empty "the daemon calls verbs in daemon/backend_ibv.c only" \
	"$(uses_outside '\bibv_[a-z_]+[[:space:]]*\(' daemon daemon/backend_ibv.c)"
tap_empty "the data path and proto allocate no generated message" \
	"$(includes 'proto/verbsd\.pb-c\.h' client/soft)"
tap_done
