# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Puts the installed tree that VERBSD_ROOT names into the guest's usual places, as a package would, and takes it away.
# The tree is what `make install DESTDIR=` made with prefix /usr; or a prefix, and then the paths in the unit are replaced.

manifest=$work/manifest

# install_tree FROM TO: copies what there is below FROM and notes what it made.
install_tree()
{
	[ -d "$1" ] || return 0
	mkdir -p "$2"
	cp -r --no-preserve=ownership "$1/." "$2/"
	(cd "$1" && find . -mindepth 1 ! -type d -printf "$2/%P\n") >>"$manifest"
}

install_guest()
{
	local from=$1 dir
	: >"$manifest"
	if [ -d "$from/usr" ]; then
		install_tree "$from/usr" /usr
	else
		for dir in bin sbin lib libexec share; do
			install_tree "$from/$dir" "/usr/$dir"
		done
		sed -i -E -e 's|^(Exec[A-Za-z]*=)[^ ]*/(s?bin)/verbs|\1/usr/\2/verbs|' \
			-e 's|--config [^ ]*/verbsd.conf|--config /etc/verbsd/verbsd.conf|' /usr/lib/systemd/system/verbsd.service
	fi
	install_tree "$from/etc" /etc
	chmod -R go+rX /etc/verbsd
	# What the maintainer scripts of a package do.
	systemd-sysusers verbsd.conf
	systemd-tmpfiles --create verbsd.conf
	systemctl daemon-reload
}

uninstall_guest()
{
	xargs -d '\n' rm -f <"$manifest"
	rm -rf /etc/verbsd
	systemctl daemon-reload
}
