package house

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// module is the path of the main module; nested modules lie below it.
const module = "github.com/sharetxn/sharetxn"

// root is the repository's folder as seen from this package's tests.
const root = "../.."

// rule finds what breaks it in a tree. Its examples are small trees that break
// it, or that look as if they did, with what must be found.
type rule struct {
	name     string
	find     func(*tree) []offence
	examples []example
}

type example struct {
	name  string
	files map[string]string
	want  []string // offences as text
}

type offence struct {
	file string
	line int
	what string
}

func (o offence) String() string { return fmt.Sprintf("%s:%d: %s", o.file, o.line, o.what) }

func TestRules(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	repo := load(t, os.DirFS(root))
	if len(repo.sources) < 50 {
		t.Fatalf("only %d Go files found: the rules would hold for nothing", len(repo.sources))
	}
	for _, r := range slices.Concat(importRules, testRules, pageRules) {
		t.Run(r.name, func(t *testing.T) {
			for _, o := range r.find(repo) {
				t.Error(o)
			}
		})
		if len(r.examples) == 0 {
			t.Errorf("%s: no example breaks this rule, so nothing shows that it holds", r.name)
		}
		for _, ex := range r.examples {
			t.Run(r.name+"/example/"+ex.name, func(t *testing.T) {
				var got []string
				for _, o := range r.find(parse(t, ex.files)) {
					got = append(got, o.String())
				}
				slices.Sort(got)
				if !slices.Equal(got, ex.want) {
					t.Errorf("found\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(ex.want, "\n\t"))
				}
			})
		}
	}
}

// tree is the text of a repository, its Go files parsed.
type tree struct {
	fset    *token.FileSet
	files   map[string][]byte
	sources []source // sorted by file
}

type source struct {
	file string
	*ast.File
}

func (s source) dir() string         { return path.Dir(s.file) }
func (s source) test() bool          { return strings.HasSuffix(s.file, "_test.go") }
func (t *tree) line(p token.Pos) int { return t.fset.Position(p).Line }

func (t *tree) at(s source, p token.Pos, format string, args ...any) offence {
	return offence{s.file, t.line(p), fmt.Sprintf(format, args...)}
}

// imports lists the import paths of s with their places.
func (s source) imports() map[string]token.Pos {
	all := make(map[string]token.Pos, len(s.Imports))
	for _, spec := range s.Imports {
		all[strings.Trim(spec.Path.Value, "\"`")] = spec.Pos()
	}
	return all
}

// load reads all that belongs to the repository: not what git, tools, editors
// and builds leave beside it.
func load(t *testing.T, fsys fs.FS) *tree {
	t.Helper()
	files := make(map[string]string)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		switch {
		case base == ".git": // a folder, or in a worktree a file that names one
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() && name != "." && strings.HasPrefix(base, ".") && base != ".ci":
			return fs.SkipDir
		case d.IsDir() && (name == "bin" || name == "dist" || strings.HasSuffix(name, "testdata/rapid")):
			return fs.SkipDir
		case !d.Type().IsRegular(), slices.Contains([]string{".test", ".out", ".prof"}, path.Ext(name)):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, files)
}

// In a worktree .git is a file with a path of the machine; it is not ours.
func TestLoadSkipsGit(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for name, git := range map[string]string{"worktree": ".git", "clone": ".git/config"} {
		got := load(t, fstest.MapFS{git: {Data: []byte("gitdir")}, ".ci/run": {}, "docs/a.md": {}}).names()
		if !slices.Equal(got, []string{".ci/run", "docs/a.md"}) {
			t.Errorf("%s: loaded %v", name, got)
		}
	}
}

func parse(t *testing.T, files map[string]string) *tree {
	t.Helper()
	tr := &tree{fset: token.NewFileSet(), files: make(map[string][]byte, len(files))}
	for name, text := range files {
		tr.files[name] = []byte(text)
		if path.Ext(name) != ".go" {
			continue
		}
		f, err := parser.ParseFile(tr.fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		tr.sources = append(tr.sources, source{name, f})
	}
	slices.SortFunc(tr.sources, func(a, b source) int { return cmp.Compare(a.file, b.file) })
	return tr
}

// names lists the files of the tree in order.
func (t *tree) names() []string { return slices.Sorted(maps.Keys(t.files)) }

// lineOf tells in which line of text the byte at offset stands.
func lineOf(text []byte, offset int) int { return 1 + bytes.Count(text[:offset], []byte("\n")) }

// isCall tells whether n calls pkg.name.
func isCall(n ast.Node, pkg, name string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && sel.Sel.Name == name
}

// calls tells whether pkg.name is called anywhere below n.
func calls(n ast.Node, pkg, name string) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		found = found || isCall(n, pkg, name)
		return !found
	})
	return found
}
