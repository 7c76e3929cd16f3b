package index

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// mutant is a mistake that the model must find: one of a member, or one in the
// Index itself, in whose source a text is replaced for it.
type mutant struct {
	name    string
	world   limits
	policy  policy
	file    string
	replace [][2]string
	want    string // in what is found
}

// The worlds in which mistakes show.
var (
	twoMembers = limits{members: 2, offsets: [parts]int{1, 0}, txns: 3, expire: 1}
	aborting   = limits{members: 2, offsets: [parts]int{1, 0}, txns: 3, expire: 1, timeout: 1}
	cutting    = limits{members: 2, offsets: [parts]int{1, 0}, txns: 2, expire: 1, cut: 1}
	losing     = limits{members: 2, offsets: [parts]int{1, 0}, txns: 2, lostAck: 1, crash: 1, cut: 1}
	resetting  = limits{members: 2, offsets: [parts]int{1, 0}, txns: 2, expire: 1, evict: 1, reset: 1}
	hiding     = limits{members: 2, offsets: [parts]int{1, 0}, txns: 3, expire: 1, timeout: 1, lose: 1, hide: 1}
	everything = limits{members: 2, offsets: [parts]int{1, 0}, txns: 2, evict: 1, reset: 1, cut: 1}
)

// after is l from where the steps lead.
func (l limits) after(steps []step) limits {
	l.prefix = steps
	return l
}

const (
	doubled = "published twice: "
	lost    = "lost: "
	stuck   = "stuck: "
)

var mutants = []mutant{
	{name: "M1 no check", world: twoMembers, policy: policy{noCheck: true}, want: doubled},
	{name: "M2 open is fresh at the check", world: twoMembers, want: doubled, file: "decide.go", replace: [][2]string{
		{`if v != Fresh {`, `if v != Fresh && !(v == Open && mutated("M2 open is fresh at the check")) {`},
	}},
	{name: "M3 done without a marker", world: aborting, want: lost, file: "index.go", replace: [][2]string{
		{"\t\tpe.source.open = append(pe.source.open, pe)\n", "\t\tpe.source.open = append(pe.source.open, pe)\n" +
			"\t\tif mutated(\"M3 done without a marker\") {\n\t\t\tfor _, r := range pe.Ranges {\n\t\t\t\tpe.source.done.add(r.First, r.Last)\n\t\t\t}\n\t\t}\n"},
	}},
	{name: "M4 any marker of the producer id decides", world: limits{members: 2, offsets: [parts]int{2, 0}, txns: 3, expire: 1, repeat: 1}, want: lost,
		file: "index.go", replace: [][2]string{
			{"switch ahead := int32(p.Epoch) - int32(t.epoch); {", "ahead := int32(p.Epoch) - int32(t.epoch)\n\tif mutated(\"M4 any marker of the producer id decides\") {\n\t\tahead = 1\n\t}\n\tswitch {"},
		}},
	{name: "M5 a gap leaves entries open", world: limits{members: 2, offsets: [parts]int{1, 0}, txns: 2, expire: 1, timeout: 1, cut: 1, prefix: []step{
		{kind: acquire, n: 1}, {kind: look}, {kind: produce}, {kind: expireLock}, {kind: acquire, m: 1, n: 1}, {kind: readLedger, m: 1}, {kind: timeoutTxn},
		{kind: writeMarker}, {kind: copyRecord, m: cutter}, {kind: deleteBelow, m: cutter},
	}}, want: "the log cannot be read", file: "index.go", replace: [][2]string{
		{"\tclear(x.open)\n\tfor", "\tif !mutated(\"M5 a gap leaves entries open\") {\n\t\tclear(x.open)\n\t}\n\tfor"},
		{"s.open, s.asOf = nil, -1", "s.asOf = -1\n\t\tif !mutated(\"M5 a gap leaves entries open\") {\n\t\t\ts.open = nil\n\t\t}"},
	}},
	{name: "M6 a start read before the gap settles it", world: cutting.after([]step{
		{kind: acquire, n: 1}, {kind: readStart}, {kind: expireLock}, {kind: look}, {kind: acquire, m: 1, n: 1},
	}), want: doubled, file: "index.go", replace: [][2]string{
		{"if asOf >= x.resumed && (", "if mutated(\"M6 a start read before the gap settles it\") {\n\t\tasOf = max(asOf, x.resumed)\n\t}\n\tif asOf >= x.resumed && ("},
	}},
	{name: "M6 a gap leaves nothing unsure", world: cutting.after([]step{
		{kind: acquire, n: 1}, {kind: expireLock}, {kind: look}, {kind: acquire, m: 1, n: 1}, {kind: look, m: 1},
	}), want: doubled, file: "decide.go", replace: [][2]string{
		{"return !x.gapped ||", "return !x.gapped || mutated(\"M6 a gap leaves nothing unsure\") ||"},
	}},
	{name: "M6 the log need not be read to its end of the time of the start", world: everything.after([]step{
		{kind: acquire, n: 1}, {kind: look}, {kind: evict}, {kind: acquire, m: 1, n: 1}, {kind: look, m: 1}, {kind: produce, m: 1}, {kind: readLedger, m: 1},
		{kind: check, m: 1}, {kind: commit, m: 1}, {kind: settle, m: 1}, {kind: writeMarker, n: 1},
	}), want: doubled, file: "decide.go", replace: [][2]string{
		{"x.next >= s.end &&", "(x.next >= s.end || mutated(\"M6 the log need not be read to its end of the time of the start\")) &&"},
	}},
	{name: "M7 truncation past what is committed and not below the start", world: losing, want: doubled, file: "kept.go", replace: [][2]string{
		{"k.undecided || k.last", "k.undecided || !mutated(\"M7 truncation past what is committed and not below the start\") && k.last"},
	}},
	{name: "M7 truncation past the generation", world: losing, want: "no generation", file: "index.go", replace: [][2]string{
		{"return min(first, x.written)\n\t}\n\treturn x.written", "return min(first, x.written)\n\t}\n\tif mutated(\"M7 truncation past the generation\") {\n\t\treturn x.next\n\t}\n\treturn x.written"},
	}},
	{name: "M8 truncation past what is undecided", world: cutting.after([]step{
		{kind: acquire, n: 1}, {kind: expireLock}, {kind: look}, {kind: acquire, m: 1, n: 1}, {kind: produce},
	}), want: doubled, file: "kept.go", replace: [][2]string{
		{"!k.dead && (", "!k.dead && !(k.undecided && mutated(\"M8 truncation past what is undecided\")) && ("},
	}},
	{name: "M9 no look after a wait", world: aborting, policy: policy{lookOnce: true}, want: stuck},
	{name: "M10 entries of an older generation count", world: resetting, want: lost, file: "index.go", replace: [][2]string{
		{"\tclear(x.sources)\n", "\tif !mutated(\"M10 entries of an older generation count\") {\n\t\tclear(x.sources)\n\t}\n"},
	}},
	{name: "M10 a zombie goes on in the next generation", world: resetting, policy: policy{anyGeneration: true}, want: doubled},
	{name: "M11 checked before the own entry is read", world: twoMembers, policy: policy{unreadCommits: true}, want: doubled},
	{name: "M12 open is done", world: aborting, policy: policy{openIsDone: true}, want: lost},
	{name: "M13 released on a conflict", world: twoMembers, policy: policy{releases: true}, want: lost},
	{name: "M14 an abort decides what a lost marker left open", world: hiding, want: doubled, file: "index.go", replace: [][2]string{
		{"!commit && !AbortRepair(t.epoch, p.Epoch):", "!commit && !AbortRepair(t.epoch, p.Epoch) && !mutated(\"M14 an abort decides what a lost marker left open\"):"},
	}},
	{name: "M15 a repaired commit is not taken for one", world: hiding, want: "the log cannot be read", file: "index.go", replace: [][2]string{
		{"case ahead > 1 &&", "case ahead > 1 && commit && mutated(\"M15 a repaired commit is not taken for one\"), ahead > 1 &&"},
	}},
	{name: "M16 a repaired abort is not taken for one", world: hiding, want: "the log cannot be read", file: "index.go", replace: [][2]string{
		{"return ahead > 1 &&", "return !mutated(\"M16 a repaired abort is not taken for one\") && ahead > 1 &&"},
	}},
}

// mutantEnv names the mutant that a process with mutated source is.
const mutantEnv = "SHARETXN_MUTANT"

func TestMain(m *testing.M) {
	if name := os.Getenv(mutantEnv); name != "" {
		for _, mu := range mutants {
			if mu.name != name {
				continue
			}
			_, f := explore(&mu.world, mu.policy)
			if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
				panic(err)
			}
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

// Every rule is there for a reason: without it, the model finds what happens.
func TestModelFindsMutants(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Minute)
	binary := build(ctx, t)
	for _, mu := range mutants {
		t.Run(mu.name, func(t *testing.T) {
			var found *finding
			if mu.file == "" {
				_, found = explore(&mu.world, mu.policy)
			} else {
				cmd := exec.CommandContext(ctx, binary)
				cmd.Env = append(os.Environ(), mutantEnv+"="+mu.name)
				out, err := cmd.Output()
				if err == nil {
					err = json.Unmarshal(out, &found)
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			if found == nil || !strings.HasPrefix(found.What, mu.want) {
				t.Fatalf("found\n%v\nwant %q", found, mu.want)
			}
			t.Logf("\n%v", found)
			// The same steps without the mistake do no harm.
			if w := replay(&mu.world, found.Trace); w.wrong != "" {
				t.Errorf("and without the mistake: %s", w.wrong)
			}
		})
	}
}

// build makes this package's test binary with all mistakes in its source, each
// of which the environment can ask for.
func build(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{"mutated.go": "package index\n\nimport \"os\"\n\nvar asked = os.Getenv(\"" + mutantEnv + "\")\n\nfunc mutated(name string) bool { return asked == name }\n"}
	for _, mu := range mutants {
		if mu.file == "" {
			continue
		}
		if sources[mu.file] == "" {
			text, err := os.ReadFile(mu.file)
			if err != nil {
				t.Fatal(err)
			}
			sources[mu.file] = string(text)
		}
		for _, r := range mu.replace {
			if n := strings.Count(sources[mu.file], r[0]); n != 1 {
				t.Fatalf("%s: %q stands %d times in %s, want once", mu.name, r[0], n, mu.file)
			}
			sources[mu.file] = strings.Replace(sources[mu.file], r[0], r[1], 1)
		}
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for file, text := range sources {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(here, file)] = filepath.Join(dir, file)
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "mutants.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".").CombinedOutput(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("%v\n%s", exit, out)
		}
		t.Fatal(err)
	}
	return binary
}
