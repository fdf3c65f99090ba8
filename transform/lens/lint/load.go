package lint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// File is a lens file that Load read.
type File struct {
	Path     string
	From, To string // the kinds
	Lens     *lens.Lens
}

// Subject returns the file's lens as the engine uses it.
func (f File) Subject() Subject {
	s := Subject{Spec: f.Lens.Spec(f.From, f.To), Mapping: f.Lens.UpMapping(), Back: f.Lens.DownMapping()}
	s.LostUp, s.LostDown = f.Lens.Lost()
	return s
}

// Input names a file to read. Empty kinds mean the kinds of the lens. If the lens names none
// either, the kind has the name of the file.
type Input struct{ Path, From, To string }

// Load reads lenses and links their references. It returns all errors, in the order of the files.
// Errors in a lens's text are *lens.ParseError.
func Load(inputs []Input, discontinued []string, options ...lens.Option) ([]File, []error) {
	var files []File
	var errs []error
	for _, in := range inputs {
		text, err := os.ReadFile(in.Path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l, wrong := parse(in.Path, text, options)
		if len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		f := File{Path: in.Path, From: in.From, To: in.To, Lens: l}
		f.kinds()
		files = append(files, f)
	}
	if len(errs) > 0 {
		return nil, errs // a reference to an unreadable file would only add a second error
	}
	// References may point to any of the files, so link only after reading all.
	set := lens.NewSet()
	for _, f := range files {
		set.Add(f.From, f.To, f.Lens)
	}
	for _, kind := range discontinued {
		set.AddDiscontinued(kind)
	}
	if err := set.Link(); err != nil {
		return nil, []error{err}
	}
	// Only all files together show whether two lenses have the same kind.
	var subjects []Subject
	for _, f := range files {
		subjects = append(subjects, f.Subject())
	}
	if _, _, err := directions(subjects); err != nil {
		return nil, []error{fmt.Errorf("the lenses contradict each other: %w", err)}
	}
	return files, nil
}

// KindOf returns the kind of a lens that changes records in place: the kind that the lens names, or
// else the name of its file up to the first dot.
func KindOf(path string, l *lens.Lens) string {
	f := File{Path: path, Lens: l}
	f.kinds()
	return f.From
}

// kinds sets the kinds that the input did not give.
func (f *File) kinds() {
	own := f.Lens.Spec("", "")
	stem, _, _ := strings.Cut(filepath.Base(f.Path), ".")
	for _, k := range []struct {
		name *string
		side transform.Side
	}{{&f.From, own.Old}, {&f.To, own.New}} {
		if *k.name == "" {
			*k.name = k.side.Kinds[0].Name
		}
		if *k.name == "" {
			*k.name = stem
		}
	}
}

// mostErrors limits the errors reported for one file.
const mostErrors = 20

// parse reads a lens. If an operation has an error, it parses the rest without the operation, so
// that all errors appear at once.
func parse(path string, text []byte, options []lens.Option) (*lens.Lens, []error) {
	var errs []error
	// Each round finds one more error, because the parser stops at the first.
	for len(errs) < mostErrors {
		l, err := lens.Parse(path, text, options...)
		if err == nil {
			return l, errs
		}
		errs = append(errs, err)
		var at *lens.ParseError
		if !errors.As(err, &at) {
			break
		}
		rest, ok := without(text, at)
		if !ok {
			break
		}
		text = rest
	}
	return nil, errs
}

// without blanks the lines of the operation that contains an error. All other lines keep their
// numbers.
func without(text []byte, wrong *lens.ParseError) ([]byte, bool) {
	f, err := parser.ParseBytes(text, 0)
	if err != nil || len(f.Docs) == 0 {
		return nil, false
	}
	top, ok := f.Docs[0].Body.(*ast.MappingNode)
	if !ok {
		return nil, false
	}
	for _, e := range top.Values {
		list, ok := e.Value.(*ast.SequenceNode)
		// A list in flow style may be on one line, which cannot be blanked in part.
		if e.Key.String() != "operations" || !ok || list.IsFlowStyle || len(list.Values) < 2 {
			continue
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		var starts []int
		for _, v := range list.Values {
			starts = append(starts, startOf(v))
		}
		// Find the operation that begins at or before the line of the error.
		i := len(starts) - 1
		for i >= 0 && starts[i] > wrong.Line {
			i--
		}
		// The error is outside the operations.
		if i < 0 || i == len(starts)-1 && after(top, e, wrong.Line) {
			return nil, false
		}
		if starts[i] == wrong.Line && wrong.Column <= list.GetToken().Position.Column {
			return nil, false // the error is in the list as a whole
		}
		// Blank up to the next operation, the next key of the file, or its end.
		end := len(lines)
		if i+1 < len(starts) {
			end = starts[i+1] - 1
		} else if next := nextKey(top, starts[i]); next > 0 {
			end = next - 1
		}
		// The parser may not count lines by line feeds.
		for k := starts[i] - 1; k < min(end, len(lines)); k++ {
			lines[k] = []byte("\n")
		}
		return bytes.Join(lines, nil), true
	}
	return nil, false
}

// startOf returns the line of a node's start.
func startOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	} else if v, ok := n.(*ast.MappingValueNode); ok {
		n = v.Key
	}
	return n.GetToken().Position.Line
}

// after reports whether a line is after the operations.
func after(top *ast.MappingNode, operations *ast.MappingValueNode, line int) bool {
	next := nextKey(top, startOf(operations))
	return next > 0 && line >= next
}

// nextKey returns the line of the file's first key after a line, or 0.
func nextKey(top *ast.MappingNode, line int) int {
	for _, e := range top.Values {
		if at := startOf(e); at > line {
			return at
		}
	}
	return 0
}
