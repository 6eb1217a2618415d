/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsd: a placeholder until the server is wired. */

int main(void)
{
	return 0;
}
