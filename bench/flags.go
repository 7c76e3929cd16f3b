package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// contests by name, in the order in which they are held.
var contests = []string{"transactions", "consume", "start", "ctp", "copies"}

// stockHeartbeat is how often members of share groups send heartbeats by default.
const stockHeartbeat = 5 * time.Second

// parse makes a measurement of the command line.
func parse(args []string) (measurement, error) {
	m := measurement{transactions: 100, heartbeat: stockHeartbeat, perRun: recordsOf, copies: []copies{{2000, 1}, {40_000, 100}, {200_000, 1000}}}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&m.rounds, "rounds", 9, "`rounds`, each of which runs everything once")
	fs.StringVar(&m.profiles, "profile", "", "`folder` for CPU profiles of what is in Go")
	fs.StringVar(&m.json, "json", "", "`file` for all figures, run by run")
	held := fs.String("contest", strings.Join(contests, ","), "`contests` to hold")
	who := fs.String("who", strings.Join(contenders, ","), "`contenders` of consume and start")
	settings := fs.String("settings", "default,best", "`settings` of consume")
	sizes := fs.String("size", "100,1000", "`bytes` of a value of consume and ctp")
	txns := fs.String("txn", "1,100,1000", "`records` of a transaction of ctp, at most")
	fs.IntVar(&m.consume.Records, "records", 500_000, "`records` of a run of consume")
	fs.IntVar(&m.consume.Partitions, "partitions", 4, "`partitions` of the topics of consume and ctp")
	fs.IntVar(&m.consume.Batch, "batch", 16<<10, "`bytes` of producer batches of the topics of consume and ctp")
	fs.IntVar(&m.consume.Fetch, "fetch", 4000, "`records` that a fetch or a poll takes at best settings")
	if err := fs.Parse(args); err != nil {
		return m, err
	}
	var errs []error
	pick := func(name, text string, from []string) []string {
		words := strings.Split(text, ",")
		for _, w := range words {
			if !slices.Contains(from, w) {
				errs = append(errs, fmt.Errorf("-%s: %q is none of %s", name, w, strings.Join(from, ", ")))
			}
		}
		return words
	}
	m.held = pick("contest", *held, contests)
	m.who = pick("who", *who, contenders)
	for _, s := range pick("settings", *settings, []string{"default", "best"}) {
		m.best = append(m.best, s == "best")
	}
	if !m.holds("start") && !m.holds("consume") { // of ctp joining is not measured, only waited for
		m.heartbeat = stockHeartbeat / 10
	}
	numbers := func(name, text string) (ns []int) {
		for _, s := range strings.Split(text, ",") {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				errs = append(errs, fmt.Errorf("-%s: %q, want numbers from 1", name, s))
			}
			ns = append(ns, n)
		}
		return ns
	}
	m.sizes, m.txns = numbers("size", *sizes), numbers("txn", *txns)
	if least := slices.Min(m.sizes); m.holds("ctp") && least < valueNumber {
		errs = append(errs, fmt.Errorf("-size: %d, want %d or more for ctp, which numbers its records", least, valueNumber))
	}
	for name, n := range map[string]int{"rounds": m.rounds, "records": m.consume.Records, "partitions": m.consume.Partitions, "batch": m.consume.Batch, "fetch": m.consume.Fetch} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("-%s: %d, want 1 or more", name, n))
		}
	}
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is no flag", fs.Arg(0)))
	}
	return m, errors.Join(errs...)
}
