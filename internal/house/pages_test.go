package house

import (
	"bytes"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// pageRules are about what readers see: pages, and text in any file.
var pageRules = []rule{
	{name: "links lead somewhere", find: deadLinks, examples: []example{
		{name: "dead", files: map[string]string{
			"README.md":  "[a](DESIGN.md)\n[b](docs/none.md#part) [c](/acks)\n",
			"DESIGN.md":  "[up](../README.md)\n",
			"acks/a.txt": "[not a page](none.md)\n",
		}, want: []string{
			"DESIGN.md:1: link to ../README.md leads nowhere",
			"README.md:2: link to /acks leads nowhere",
			"README.md:2: link to docs/none.md leads nowhere",
		}},
		{name: "alive", files: map[string]string{
			"README.md":   "[file](acks/a.go) [folder](acks) [part](#more) [web](https://github.com/twmb/franz-go) [mail](mailto:a@example.org)\n",
			"acks/a.go":   "package acks\n",
			"acks/doc.md": "[up](../README.md#more)\n",
		}},
	}},
	{name: "code on pages is tested code", find: untestedCode, examples: []example{
		{name: "as in the file", files: map[string]string{
			"README.md":         "<!-- example: examples/a/a.go -->\n```go\nfunc A() {\n\tB()\n}\n```\n",
			"examples/a/a.go":   "package a\n\nfunc A() {\n\tB()\n}\n",
			"examples/a/doc.md": "```go\nanything()\n```\n",
		}},
		{name: "drifted", files: map[string]string{
			"README.md":       "\n<!-- example: examples/a/a.go -->\n```go\nA(1)\n```\n",
			"examples/a/a.go": "package a\n\nfunc B() { A(12) }\n",
		}, want: []string{"README.md:2: the code below is not in examples/a/a.go"}},
		{name: "absent", files: map[string]string{
			"README.md": "<!-- example: examples/a/a.go -->\n<!-- example: examples/a/b.go -->\n\n```go\nA()\n```\n",
		}, want: []string{
			"README.md:1: no code below the mark of examples/a/a.go",
			"README.md:2: the code below is not in examples/a/b.go",
		}},
	}},
	{name: "tests named on pages exist", find: unknownTests, examples: []example{
		{name: "gone", files: map[string]string{
			"docs/a.md":         "`acks TestA`, `acks TestB` (one)\n| `acks/more TestA`, `none TestA` |\n",
			"acks/a_test.go":    "package acks\nfunc TestA(t *testing.T) { testkit.Deadline(t, 1) }\nfunc TestC(t *testing.T) {}\n",
			"acks/more/a.go":    "package more\nfunc TestA() {}\n",
			"acks/b_test.go":    "package acks\nfunc (x) TestB(t *testing.T) {}\n",
			"acks/more/more.md": "`go test -run TestNone ./acks` and `TestNone` name no folder\n",
		}, want: []string{
			"docs/a.md:1: there is no acks TestB",
			"docs/a.md:2: there is no acks/more TestA",
			"docs/a.md:2: there is no none TestA",
		}},
	}},
	{name: "no machine in the text", find: machineText, examples: []example{
		{name: "paths", files: map[string]string{
			"a.md": "see /" + "work/shared/design.md\nin /" + "root/go and /" + "home/ann/src, /" + "Users/ann\n/tmp is fine, /workers too, a/root/b too\n",
		}, want: []string{
			"a.md:1: path of one machine: /" + "work/",
			"a.md:2: path of one machine: /" + "Users/",
			"a.md:2: path of one machine: /" + "home/",
			"a.md:2: path of one machine: /" + "root/",
		}},
		{name: "hosts", files: map[string]string{
			"a.md":    "https://github.com/x http://127.0.0.1:9092 https://" + "files.corp.example/x\n",
			".ci/run": "GOPROXY=go" + "proxy.corp.internal:3000\n",
			"a.go":    "package a\n\nvar proxy = dial.proxy.net\n",
		}, want: []string{
			".ci/run:1: host that is not everybody's: go" + "proxy.corp.internal",
			"a.md:1: host that is not everybody's: https://" + "files.corp.example",
		}},
		{name: "binary", files: map[string]string{"cmd/sharetxn/sharetxn": "\x7fELF\x00"},
			want: []string{"cmd/sharetxn/sharetxn:1: a binary"}},
	}},
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// deadLinks finds relative links of pages to what is not in the tree.
func deadLinks(t *tree) (found []offence) {
	for _, name := range t.names() {
		if path.Ext(name) != ".md" {
			continue
		}
		text := t.files[name]
		for _, at := range link.FindAllSubmatchIndex(text, -1) {
			target, _, _ := strings.Cut(string(text[at[2]:at[3]]), "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			if !t.has(path.Join(path.Dir(name), target)) || path.IsAbs(target) {
				found = append(found, offence{name, lineOf(text, at[0]), "link to " + target + " leads nowhere"})
			}
		}
	}
	return found
}

// has tells whether a file or a folder is in the tree.
func (t *tree) has(name string) bool {
	return slices.ContainsFunc(t.names(), func(n string) bool {
		return n == name || strings.HasPrefix(n, name+"/")
	})
}

var (
	mark  = regexp.MustCompile(`<!-- example: (\S+) -->\n`)
	block = regexp.MustCompile("^\n?```go\n((?s).*?\n)```\n")
)

// untestedCode finds code below a mark <!-- example: file --> that is not, line
// by line, in that file, which is compiled and tested.
func untestedCode(t *tree) (found []offence) {
	for _, name := range t.names() {
		if path.Ext(name) != ".md" {
			continue
		}
		text := t.files[name]
		for _, at := range mark.FindAllSubmatchIndex(text, -1) {
			file, line := string(text[at[2]:at[3]]), lineOf(text, at[0])
			code := block.FindSubmatch(text[at[1]:])
			switch {
			case code == nil:
				found = append(found, offence{name, line, "no code below the mark of " + file})
			case !bytes.Contains(append([]byte("\n"), t.files[file]...), append([]byte("\n"), code[1]...)):
				found = append(found, offence{name, line, "the code below is not in " + file})
			}
		}
	}
	return found
}

var namedTest = regexp.MustCompile("`([a-z0-9/]+) (Test[A-Za-z0-9_]+)`")

// unknownTests finds `folder TestName` on pages where the folder has no such
// test.
func unknownTests(t *tree) (found []offence) {
	has := make(map[string]bool)
	for _, s := range t.sources {
		for _, d := range s.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test() && f.Recv == nil {
				has[s.dir()+" "+f.Name.Name] = true
			}
		}
	}
	for _, name := range t.names() {
		if path.Ext(name) != ".md" {
			continue
		}
		text := t.files[name]
		for _, at := range namedTest.FindAllSubmatchIndex(text, -1) {
			if test := string(text[at[2]:at[3]]) + " " + string(text[at[4]:at[5]]); !has[test] {
				found = append(found, offence{name, lineOf(text, at[0]), "there is no " + test})
			}
		}
	}
	return found
}

var (
	machinePath = regexp.MustCompile(`/(?:[w]ork|[r]oot|[h]ome|[U]sers)/`)
	inPath      = regexp.MustCompile(`[A-Za-z0-9_./*-]$`) // before it: a longer path, or a glob
	address     = regexp.MustCompile(`https?://[A-Za-z0-9.-]+`)
	// Where programs get their packages is each machine's own affair.
	registry = regexp.MustCompile(`(?:[a-z0-9-]+\.)*[a-z0-9-]*(?:proxy|registry|mirror|artifactory|nexus)[a-z0-9-]*(?:\.[a-z0-9-]+)*\.(?:com|org|net|io|dev|internal|local|lan)\b`)
)

// everybodys are the hosts that a tracked file may name.
var everybodys = []string{
	"127.0.0.1", "localhost", "github.com", "pkg.go.dev", "www.apache.org", "kafka.apache.org", "cwiki.apache.org",
	"maven.apache.org", "www.w3.org", "earthquake.usgs.gov",
}

// machineText finds what belongs to one machine, and files that are no text.
func machineText(t *tree) (found []offence) {
	for _, name := range t.names() {
		text := t.files[name]
		if bytes.IndexByte(text, 0) >= 0 {
			found = append(found, offence{name, 1, "a binary"})
			continue
		}
		for _, at := range machinePath.FindAllIndex(text, -1) {
			if !inPath.Match(text[max(0, at[0]-1):at[0]]) {
				found = append(found, offence{name, lineOf(text, at[0]), "path of one machine: " + string(text[at[0]:at[1]])})
			}
		}
		for _, at := range address.FindAllIndex(text, -1) {
			url := string(text[at[0]:at[1]])
			_, host, _ := strings.Cut(url, "://")
			if !slices.Contains(everybodys, host) {
				found = append(found, offence{name, lineOf(text, at[0]), "host that is not everybody's: " + url})
			}
		}
		if ext := path.Ext(name); ext == ".go" || ext == ".ndjson" {
			continue // a.proxy.net is a field there; and the data names no hosts but in addresses
		}
		for _, at := range registry.FindAllIndex(text, -1) {
			found = append(found, offence{name, lineOf(text, at[0]), "host that is not everybody's: " + string(text[at[0]:at[1]])})
		}
	}
	return found
}
