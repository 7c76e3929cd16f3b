package house

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// testRules are what every test must have, and what none may do.
var testRules = []rule{
	{name: "every test has its own deadline", find: endless, examples: []example{
		{name: "without", files: map[string]string{
			"acks/a_test.go": "package acks\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Log() }\nfunc TestMain(m *testing.M) {}\nfunc helper(t *testing.T) {}\n",
		}, want: []string{"acks/a_test.go:3: TestA has no deadline of its own: testkit.Deadline"}},
		{name: "with", files: map[string]string{
			"acks/a_test.go": "package acks\nfunc TestA(t *testing.T) { testkit.Deadline(t, 1) }\nfunc TestB(t *testing.T) { synctest.Test(t, nil) }\n" +
				"func virtual(t *testing.T) { synctest.Test(t, nil) }\nfunc TestD(t *testing.T) { virtual(t) }\n",
		}},
		{name: "of another name", files: map[string]string{
			"acks/a_test.go": "package acks\nfunc TestA(t *testing.T) { ctx.Deadline() }\n",
		}, want: []string{"acks/a_test.go:2: TestA has no deadline of its own: testkit.Deadline"}},
	}},
	{name: "leaked goroutines fail a package", find: unwatched, examples: []example{
		{name: "starts one", files: map[string]string{
			"acks/a.go":      "package acks\nfunc F() { go F() }\n",
			"acks/a_test.go": "package acks\n",
		}, want: []string{"acks/a_test.go:1: tests of acks may leave goroutines behind: TestMain with testkit.Main"}},
		{name: "TestMain that looks away", files: map[string]string{
			"acks/a_test.go": "package acks\nimport _ \"net\"\nfunc TestMain(m *testing.M) { m.Run() }\n",
		}, want: []string{"acks/a_test.go:1: tests of acks may leave goroutines behind: TestMain with testkit.Main"}},
		{name: "watched", files: map[string]string{
			"acks/a_test.go":    "package acks_test\nimport _ \"net\"\n",
			"acks/main_test.go": "package acks\nfunc TestMain(m *testing.M) { testkit.Main(m) }\n",
		}},
		{name: "watched with more to do", files: map[string]string{
			"integration/main_test.go": "package integration\nimport _ \"net\"\nfunc TestMain(m *testing.M) { run(m) }\nfunc run(m *testing.M) { stop(m.Run()); goleak.Find() }\n",
		}},
		{name: "none to watch", files: map[string]string{
			"acks/a.go":      "package acks\nfunc F() { go F() }\n", // no tests
			"wire/w_test.go": "package wire\n",
		}},
	}},
	{name: "no sleep as synchronisation", find: sleeps, examples: []example{
		{name: "real time", files: map[string]string{
			"a.go":      "package a\nfunc F() {\n\ttime.Sleep(1)\n\t<-time.After(1)\n}\n",
			"a_test.go": "package a\nfunc helper() { time.Sleep(1) }\n",
		}, want: []string{
			"a.go:3: a sleep in real time: wait for what signals, or use testing/synctest",
			"a.go:4: a sleep in real time: wait for what signals, or use testing/synctest",
			"a_test.go:2: a sleep in real time: wait for what signals, or use testing/synctest",
		}},
		{name: "virtual time, and waiting for more than time", files: map[string]string{
			"a_test.go": "package a\nfunc TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }\n" +
				"func f() { select { case <-time.After(1): case <-done: } }\n",
		}},
		{name: "before the bubble", files: map[string]string{
			"a_test.go": "package a\nfunc TestA(t *testing.T) {\n\ttime.Sleep(1)\n\tsynctest.Test(t, func(t *testing.T) {})\n}\n",
		}, want: []string{"a_test.go:3: a sleep in real time: wait for what signals, or use testing/synctest"}},
	}},
	{name: "no test skips itself", find: skips, examples: []example{
		{name: "skips", files: map[string]string{
			"a_test.go": "package a\nfunc TestA(t *testing.T) { t.Skip() }\nfunc TestB(t testing.TB) { func() { t.Skipf(\"\") }() }\n",
		}, want: []string{
			"a_test.go:2: TestA skips: a test runs or fails",
			"a_test.go:3: TestB skips: a test runs or fails",
		}},
		{name: "rapid draws again", files: map[string]string{
			"a_test.go": "package a\nfunc TestA(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip() }) }\n",
		}},
		{name: "one helper of integration", files: map[string]string{
			"integration/kafka/need.go": "package kafka\nfunc Need(t testing.TB) { t.Skip(\"no Java\") }\n",
		}},
		{name: "two of integration", files: map[string]string{
			"integration/a_test.go":     "package integration\nfunc TestA(t *testing.T) { t.SkipNow() }\n",
			"integration/kafka/need.go": "package kafka\nfunc Need(t testing.TB) { t.Skip(\"no Java\") }\n",
		}, want: []string{
			"integration/a_test.go:2: TestA skips: integration has one helper for that",
			"integration/kafka/need.go:2: Need skips: integration has one helper for that",
		}},
	}},
	{name: "every fuzz target has a corpus", find: unfed, examples: []example{
		{name: "none, and one of another's name", files: map[string]string{
			"acks/a_test.go":                 "package acks\nfunc FuzzA(f *testing.F) {}\n",
			"acks/testdata/fuzz/FuzzAll/one": "go test fuzz v1\n",
		}, want: []string{"acks/a_test.go:2: FuzzA has no corpus in acks/testdata/fuzz/FuzzA"}},
		{name: "one", files: map[string]string{
			"acks/a_test.go":               "package acks\nfunc FuzzA(f *testing.F) {}\nfunc (fuzzer) FuzzB() {}\n",
			"acks/testdata/fuzz/FuzzA/one": "go test fuzz v1\n",
		}},
	}},
}

// bubbles are the test helpers, by folder and name, that run what they are given
// inside synctest.
func bubbles(t *tree) map[string]bool {
	found := make(map[string]bool)
	for _, s := range t.sources {
		for _, d := range s.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test() && f.Recv == nil && !strings.HasPrefix(f.Name.Name, "Test") && calls(f, "synctest", "Test") {
				found[s.dir()+"."+f.Name.Name] = true
			}
		}
	}
	return found
}

// opens tells whether n is a call of one of the bubbles of the folder.
func opens(n ast.Node, dir string, bubbles map[string]bool) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	return ok && bubbles[dir+"."+name.Name]
}

// endless finds tests without a deadline. One inside synctest needs none: a
// bubble in which all wait ends by itself.
func endless(t *tree) (found []offence) {
	bubbles := bubbles(t)
	for _, s := range t.sources {
		for _, d := range s.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !s.test() || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
				continue
			}
			inside := false
			ast.Inspect(f, func(n ast.Node) bool {
				inside = inside || n != nil && opens(n, s.dir(), bubbles)
				return !inside
			})
			if !inside && !calls(f, "testkit", "Deadline") && !calls(f, "synctest", "Test") {
				found = append(found, t.at(s, f.Pos(), "%s has no deadline of its own: testkit.Deadline", f.Name.Name))
			}
		}
	}
	return found
}

// concurrent are packages that start goroutines for those who use them.
var concurrent = []string{
	"net", "testing/synctest", "github.com/twmb/franz-go/pkg/kgo",
	module + "/internal/broker", module + "/producer", module + "/shareconsumer", module + "/txnmanager",
}

// unwatched finds packages whose tests may leave goroutines and nobody looks.
// A TestMain that has more to do may call goleak.Find when it has done it.
func unwatched(t *tree) (found []offence) {
	type pkg struct{ tests, starts, main, looks bool }
	pkgs := make(map[string]*pkg)
	first := make(map[string]source)
	for _, s := range t.sources {
		p := pkgs[s.dir()]
		if p == nil {
			p = new(pkg)
			pkgs[s.dir()] = p
		}
		if s.test() && !p.tests {
			p.tests, first[s.dir()] = true, s
		}
		for imported := range s.imports() {
			p.starts = p.starts || s.test() && slices.Contains(concurrent, imported)
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				p.starts = true
			case *ast.FuncDecl:
				p.main = p.main || n.Name.Name == "TestMain"
				p.looks = p.looks || s.test() && (calls(n, "testkit", "Main") || calls(n, "goleak", "Find"))
			}
			return true
		})
	}
	for dir, p := range pkgs {
		if p.tests && p.starts && !(p.main && p.looks) {
			found = append(found, t.at(first[dir], first[dir].Package, "tests of %s may leave goroutines behind: TestMain with testkit.Main", dir))
		}
	}
	return found
}

// sleeps finds waits for nothing but time outside a synctest bubble.
func sleeps(t *tree) (found []offence) {
	bubbles := bubbles(t)
	for _, s := range t.sources {
		branches := make(map[ast.Stmt]bool) // of selects, which wait for more than time
		ast.Inspect(s.File, func(n ast.Node) bool {
			if isCall(n, "synctest", "Test") || n != nil && opens(n, s.dir(), bubbles) {
				return false // time is virtual in there
			}
			switch n := n.(type) {
			case *ast.CommClause:
				branches[n.Comm] = true
			case *ast.ExprStmt:
				receive, ok := n.X.(*ast.UnaryExpr)
				after := ok && receive.Op == token.ARROW && isCall(receive.X, "time", "After")
				if !branches[n] && (after || isCall(n.X, "time", "Sleep")) {
					found = append(found, t.at(s, n.Pos(), "a sleep in real time: wait for what signals, or use testing/synctest"))
				}
			}
			return true
		})
	}
	return found
}

// skips finds tests that skip themselves. What rapid draws anew is no skipped
// test. One function of integration may: there is not Java everywhere.
func skips(t *tree) (found []offence) {
	var ofIntegration []offence
	for _, s := range t.sources {
		for _, d := range s.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !skipsIn(f.Type, f.Body, nil) {
				continue
			}
			if strings.HasPrefix(s.file, "integration/") {
				ofIntegration = append(ofIntegration, t.at(s, f.Pos(), "%s skips: integration has one helper for that", f.Name.Name))
				continue
			}
			found = append(found, t.at(s, f.Pos(), "%s skips: a test runs or fails", f.Name.Name))
		}
	}
	if len(ofIntegration) > 1 {
		found = append(found, ofIntegration...)
	}
	return found
}

// skipsIn tells whether a function's body skips one of its own, or its outer
// functions', parameters of package testing. An inner parameter of the same
// name and another type hides an outer one.
func skipsIn(typ *ast.FuncType, body *ast.BlockStmt, outer []string) bool {
	if body == nil {
		return false
	}
	mine := slices.Clone(outer)
	for _, p := range typ.Params.List {
		for _, name := range p.Names {
			mine = slices.DeleteFunc(mine, func(n string) bool { return n == name.Name })
			if ofTesting(p.Type) {
				mine = append(mine, name.Name)
			}
		}
	}
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		if lit, ok := n.(*ast.FuncLit); ok {
			found = found || skipsIn(lit.Type, lit.Body, mine)
			return false
		}
		for _, t := range mine {
			found = found || isCall(n, t, "Skip") || isCall(n, t, "Skipf") || isCall(n, t, "SkipNow")
		}
		return !found
	})
	return found
}

func ofTesting(typ ast.Expr) bool {
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "testing"
}

// unfed finds fuzz targets without inputs that are kept: those are tried with every
// run of the tests, and fuzzing sets out from them.
func unfed(t *tree) (found []offence) {
	for _, s := range t.sources {
		for _, d := range s.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !s.test() || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}
			corpus := path.Join(s.dir(), "testdata", "fuzz", f.Name.Name)
			if !slices.ContainsFunc(t.names(), func(name string) bool { return path.Dir(name) == corpus }) {
				found = append(found, t.at(s, f.Pos(), "%s has no corpus in %s", f.Name.Name, corpus))
			}
		}
	}
	return found
}
