package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"dbcontroller.dev/integration/bench/figures"
)

// machine describes this machine. Fields stay empty if the system does not provide them.
func machine() figures.Machine {
	m := figures.Machine{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}
	// Other systems have no /proc; the page then leaves these out.
	m.Processor = field("/proc/cpuinfo", "model name")
	if kb, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64); err == nil {
		m.MemoryGB = round(kb / 1e6)
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _ = strconv.ParseFloat(strings.Fields(string(load))[0], 64)
	}
	return m
}

// field returns the value of a line "name: value" of a file, or "".
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// peakMemory returns a process's peak resident memory in MB, and resident its current one; 0 if the
// system does not provide it.
func peakMemory(pid int) float64 { return memory(pid, "VmHWM") }
func resident(pid int) float64   { return memory(pid, "VmRSS") }

func memory(pid int, name string) float64 {
	kb, _ := strconv.ParseFloat(strings.TrimSuffix(field("/proc/"+strconv.Itoa(pid)+"/status", name), " kB"), 64)
	return kb / 1024
}

// processorTime returns the processor seconds that a process has used; 0 if the system does not
// provide them.
func processorTime(pid int) float64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // skip the name, which may contain any character
	fields := strings.Fields(rest)
	const user, system, ticks = 11, 12, 100 // USER_HZ is 100 on each platform of Linux
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.ParseFloat(fields[user], 64)
	s, _ := strconv.ParseFloat(fields[system], 64)
	return (u + s) / ticks
}
