# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# bash completion for verbsctl(1).

# Index of the subcommand on the command line, 0 without one.
_verbsctl_command()
{
	local i
	for ((i = 1; i < cword; i++)); do
		case ${words[i]} in
		-s | --socket | -a | --admin-socket | -c | --config | -u | --uid) ((i++)) ;;
		-*) ;;
		*)
			echo "$i"
			return
			;;
		esac
	done
	echo 0
}

# The numbers of the clients that can be seen now.
_verbsctl_clients()
{
	local i options=()
	for ((i = 1; i < cword - 1; i++)); do
		case ${words[i]} in
		-s | --socket | -a | --admin-socket) options+=("${words[i]}" "${words[i + 1]}") ;;
		esac
	done
	"${words[0]}" "${options[@]}" clients --no-headings 2>/dev/null | awk '{ print $1 }'
}

# The names of the regions that can be seen now.
_verbsctl_regions()
{
	local i options=()
	for ((i = 1; i < cword - 1; i++)); do
		case ${words[i]} in
		-s | --socket | -a | --admin-socket) options+=("${words[i]}" "${words[i + 1]}") ;;
		esac
	done
	"${words[0]}" "${options[@]}" list region --json 2>/dev/null | sed -nE 's/^ *"name": ?"([^"]+)",?$/\1/p'
}

_verbsctl()
{
	local cur prev words cword at command
	local common="--socket --admin-socket --help --version"
	_init_completion || return
	at=$(_verbsctl_command)
	command=
	[ "$at" = 0 ] || command=${words[at]}

	if [ "$command" = run ]; then
		local i=$((at + 1))
		while [[ ${words[i]} == -* && ${words[i]} != -- && $i -lt $cword ]]; do
			case ${words[i]} in
			-c | --config | -s | --socket | -a | --admin-socket | --form | --paths) ((i++)) ;;
			esac
			((i++))
		done
		[[ ${words[i]} == -- ]] && ((i++))
		if [ "$i" -le "$cword" ] && [[ $i -lt $cword || ${words[i]} != -* ]]; then
			_command_offset "$i"
			return
		fi
	fi

	case $prev in
	-s | --socket | -a | --admin-socket | -c | --config)
		_filedir
		return
		;;
	-u | --uid)
		mapfile -t COMPREPLY < <(compgen -u -- "$cur")
		return
		;;
	esac

	case $prev in
	--form) mapfile -t COMPREPLY < <(compgen -W "auto preload soname both" -- "$cur") && return ;;
	--paths) mapfile -t COMPREPLY < <(compgen -W "auto interpose namespace none" -- "$cur") && return ;;
	esac

	local choices=
	case $command in
	"") choices="status devices counters clients list watch run mr disconnect reload" ;;
	list) choices="pd td mr cq qp srq xrcd ah wire mw parent-domain context client region" ;;
	mr)
		choices=rm
		[[ ${words[at + 1]} == rm && $cword -gt $((at + 1)) ]] && choices=$(_verbsctl_regions)
		;;
	disconnect) choices=$(_verbsctl_clients) ;;
	esac
	if [[ $cur == -* ]]; then
		case $command in
		"" | status | devices | counters | clients | list) choices="$common --json --no-headings" ;;
		watch) choices="$common --json" ;;
		run) choices="$common --private --config --form --paths --no-paths --shared-heap --" ;;
		mr) choices="$common --uid" ;;
		*) choices=$common ;;
		esac
	fi
	mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
} && complete -F _verbsctl verbsctl
