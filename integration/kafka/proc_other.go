//go:build !linux

package kafka

import "syscall"

func procAttr() *syscall.SysProcAttr { return nil }
