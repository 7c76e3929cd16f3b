package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// What another process used is read from Linux's /proc; elsewhere it is 0, and
// the table says nothing.

// load is how many processes ran or wanted to in the last minute: of a run on a
// busy machine only ratios say something.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	minute, _, _ := strings.Cut(string(text), " ")
	return minute
}

// processorTime is what a process has used, user and system.
func processorTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return ticks(stat)
}

// ticks finds the processor time in the text of /proc/PID/stat. The second field
// is the program's name in brackets, which may hold anything.
func ticks(stat []byte) time.Duration {
	const hz = 100 // Linux's USER_HZ on every machine that runs Go
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * time.Second / hz
}

// peakMemory is the most that a process ever had in memory, in bytes.
func peakMemory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return highWater(status)
}

// highWater finds the peak in the text of /proc/PID/status.
func highWater(status []byte) int64 {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}
