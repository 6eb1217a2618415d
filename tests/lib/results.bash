#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
