#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The rules of the house style that a machine can see.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash
export LC_ALL=C.UTF-8

sources() { find proto daemon client tests -name '*.[ch]' -not -path '*/models/*' "$@"; }

tap_empty "no source file above 1000 lines" \
	"$(sources -exec wc -l {} + | awk '$2 != "total" && $1 > 1000 { print $2 ": " $1 " lines" }')"
tap_empty "no line of a source above 140 characters" \
	"$(sources -exec grep -nHoE '^.{141}' {} + | cut -d: -f1,2)"
tap_empty "no blank at the end of a line" "$(sources -exec grep -nE '[[:blank:]]+$' {} +)"
# A sleep says on its line what it is for, which is never to wait for something: a pause between two looks, say.
tap_empty "tests do not sleep without a reason" \
	"$({
		grep -rnE --include='*.[ch]' '\b(sleep|usleep|nanosleep|clock_nanosleep)[[:space:]]*\(' tests/unit tests/lib tests/e2e
		grep -rnE --include='*.sh' --include='*.py' --include='*.bash' \
			'(^|[;&|[:space:]])(sleep[[:space:]]+[0-9.$]|time\.sleep\()' tests/unit tests/lib tests/e2e tests/vm
	} | grep -vE '[[:space:]](#|/\*) ')"
tap_empty "no assertion on time in unit tests" \
	"$(grep -rnE --include='*.c' 'ck_assert.*(elapsed|clock_gettime|duration)' tests/unit)"
tap_empty "volatile is not synchronisation" \
	"$(grep -rnE '\bvolatile\b' proto client/soft daemon --include='*.[ch]' | grep -vE 'asm|sig_atomic_t|/\*|^\S+:[0-9]+:[[:space:]]*\*')"
tap_empty "config.h is included by the command line alone" \
	"$(grep -rnE --include='*.[ch]' 'include[[:space:]]*[<"]config\.h' proto daemon client tests)"
tap_empty "each .c in the product opens with a comment that says why it exists" \
	"$(find proto daemon client -name '*.c' | while IFS= read -r file; do
		sed -n '2,4p' "$file" | grep -q '/\*' || echo "$file"
	done)"
tap_done
