package keymap

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/transform"
)

// sourceNames and targetNames return the patterns of the two sides. The _ids of both must be names.
func (k Way) sourceNames() (*Pattern, []int) {
	f, at := k.Source()
	return f.Pattern(), at
}

func (k Way) targetNames() (*Pattern, []int) {
	f, at := k.Target()
	return f.Pattern(), at
}

// Parent maps a prefix of names that ends before a slash. The names under parent correspond exactly
// to the names under the result. Parent maps "" to "". If there is no such prefix, the error is a
// *transform.MappingError.
func (k Way) Parent(parent string) (string, error) {
	if parent == "" {
		return "", nil
	}
	if err := k.Named(); err != nil {
		return "", &transform.MappingError{Field: parent, Reason: err.Error()}
	}
	values, bound, n, err := k.bind(parent)
	if err != nil {
		return "", &transform.MappingError{Field: parent, Reason: err.Error()}
	}
	if n < 0 { // the parent ends within {_key}
		return values[0], nil
	}
	src, _ := k.sourceNames()
	p, at := k.targetNames()
	// The values of the parent's segments determine a prefix of the target's names.
	end, err := k.boundPrefix(bound)
	if err != nil {
		return "", &transform.MappingError{Field: parent, Reason: err.Error()}
	}
	// The bound values determine one whole name. Drop its last segment if it is fixed.
	if end == len(p.Segments) {
		if end--; p.Segments[end].Variable >= 0 {
			return "", &transform.MappingError{Field: parent, Reason: "it is a single name in the other version, with no names under it"}
		}
	}
	// A parent that ends with a variable maps to a parent that ends with one, so drop fixed
	// segments at the end.
	if src.Segments[n-1].Variable >= 0 {
		for end > 0 && p.Segments[end-1].Variable < 0 {
			end--
		}
	}
	if end == 0 {
		return "", &transform.MappingError{Field: parent, Reason: fmt.Sprintf("the names under it have no common prefix in the other version, where names have the form %s", p)}
	}
	// Put the values into the order of the target's form.
	ordered := make([]string, len(at))
	for i, slot := range at {
		ordered[i] = values[slot]
	}
	return string(p.AppendName(nil, ordered, end)), nil
}

// boundPrefix returns the number of leading target segments with bound values. It returns an error
// if a later segment is bound too, because the result would then include other names.
func (k Way) boundPrefix(bound []bool) (int, error) {
	p, at := k.targetNames()
	end := 0
	for i, s := range p.Segments {
		if s.Variable < 0 {
			// A fixed segment extends the prefix only if everything before it is known.
			if end == i {
				end = i + 1
			}
			continue
		}
		switch v := k.Variables[at[s.Variable]]; {
		case !bound[at[s.Variable]]:
		case end == i:
			end = i + 1
		case v.OneSided:
			// Other values of this constant have no counterpart here, so all names match.
		default:
			return 0, fmt.Errorf("it has no single counterpart in the other version, where names have the form %s and {%s} comes after a part that the prefix leaves open", p, v.Name)
		}
	}
	return end, nil
}

// bind matches a prefix of a name of n segments. If the prefix ends within a {_key} that ends both
// patterns, n is negative and values[0] is the counterpart.
func (k Way) bind(parent string) (values []string, bound []bool, n int, err error) {
	src, at := k.sourceNames()
	if src.whole >= 0 {
		return k.bindWhole(parent)
	}
	// Match the leading segments one by one.
	parts := strings.Split(parent, "/")
	if len(parts) >= len(src.Segments) {
		return nil, nil, 0, fmt.Errorf("names are %s: nothing is under it", src)
	}
	own := make([]string, len(src.variables))
	values, bound = make([]string, len(k.Variables)), make([]bool, len(k.Variables))
	for i := range k.Variables {
		// Constants of the target are bound for any parent.
		if v := &k.Variables[i]; v.OneSided && v.Field == nil {
			values[i], bound[i] = v.Constant, true
		}
	}
	for i, part := range parts {
		s := src.Segments[i]
		if !s.match(part, own, false) {
			return nil, nil, 0, fmt.Errorf("it is not the beginning of a name of the form %s", src)
		}
		if s.Variable < 0 {
			continue
		}
		slot := at[s.Variable]
		// The other version has only records with the constant, and the parent has another value.
		if bound[slot] && values[slot] != own[s.Variable] {
			v := k.Variables[slot]
			return nil, nil, 0, fmt.Errorf("the other version has records of %s %q only", v.Name, v.Constant)
		}
		// The value is a field of the record there, not part of its name.
		if v := k.Variables[slot]; v.Field != nil {
			return nil, nil, 0, fmt.Errorf("it has no single counterpart in the other version, whose names have no {%s}", v.Name)
		}
		values[slot], bound[slot] = own[s.Variable], true
	}
	return values, bound, len(parts), nil
}

// bindWhole maps a parent where {_key} ends both patterns. The patterns then differ only in the
// text before it.
func (k Way) bindWhole(parent string) ([]string, []bool, int, error) {
	src, _ := k.sourceNames()
	dst, _ := k.targetNames()
	for _, p := range []*Pattern{src, dst} {
		// Anything after {_key} would restrict the names, so a prefix would not be exact.
		last := p.Segments[len(p.Segments)-1]
		if p.whole != len(p.Segments)-1 || last.after != "" || len(p.variables) > 1 {
			return nil, nil, 0, fmt.Errorf("with names of the form %s, only whole names have a counterpart", p)
		}
	}
	begin := strings.TrimSuffix(src.Plain, "{"+WholeKey+"}")
	// The slash ensures that whole segments match.
	rest, ok := strings.CutPrefix(parent+"/", begin)
	if !ok {
		return nil, nil, 0, fmt.Errorf("it is not the beginning of a name of the form %s", src)
	}
	return []string{strings.TrimSuffix(strings.TrimSuffix(dst.Plain, "{"+WholeKey+"}")+rest, "/")}, nil, -1, nil
}

// Prefix maps any prefix of names. The names that begin with s correspond exactly to the names that
// begin with the result. If there is no such prefix, the error is a *transform.MappingError.
func (k Way) Prefix(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	at := strings.LastIndexByte(s, '/')
	// Split the prefix into complete segments and the beginning of the next one.
	parent, part := "", s
	if at >= 0 {
		parent, part = s[:at], s[at+1:]
	}
	refused := func(err error) (string, error) {
		return "", &transform.MappingError{Field: s, Reason: err.Error()}
	}
	if err := k.Named(); err != nil {
		return refused(err)
	}
	src, slots := k.sourceNames()
	dst, dstAt := k.targetNames()
	if src.whole >= 0 {
		if part != "" || parent == "" {
			return refused(errors.New("end the prefix with a slash behind a segment"))
		}
		out, err := k.Parent(parent)
		return out + "/", err
	}
	values, bound := make([]string, len(k.Variables)), make([]bool, len(k.Variables))
	n := 0
	if at >= 0 {
		var err error
		if values, bound, n, err = k.bind(parent); err != nil {
			return refused(err)
		}
	} else {
		for i := range k.Variables {
			if v := &k.Variables[i]; v.OneSided && v.Field == nil {
				values[i], bound[i] = v.Constant, true
			}
		}
	}
	// open is the segment that the prefix ends in.
	open := src.Segments[n]
	end, err := k.boundPrefix(bound)
	if err != nil {
		return refused(err)
	}
	ordered := make([]string, len(dstAt))
	for i, slot := range dstAt {
		ordered[i] = values[slot]
	}
	head := string(dst.AppendName(nil, ordered, end))
	if end == len(dst.Segments) {
		return refused(errors.New("it is a single name in the other version; compare with == instead"))
	}
	if end > 0 {
		head += "/"
	}
	switch {
	case part == "":
		// All names under the parent match: the rest of both forms is open or constant.
		return head, nil
	case open.Variable < 0 || bound[slots[open.Variable]] || !strings.HasPrefix(part, open.Before):
		return refused(fmt.Errorf("the prefix ends within a fixed part of %s; end it with a slash", src))
	// The next segment of the target must be the same variable.
	case dst.Segments[end].Variable < 0 || dstAt[dst.Segments[end].Variable] != slots[open.Variable]:
		return refused(fmt.Errorf("the names that begin so do not begin alike in the other version, where they are %s", dst))
	}
	v := part[len(open.Before):]
	if tail := open.after; tail != "" && strings.Contains(v+"/", tail[:1]) || dst.Segments[end].after != open.after {
		return refused(fmt.Errorf("the prefix may reach into what follows {%s}; end it with a slash", k.Variables[slots[open.Variable]].Name))
	}
	return head + dst.Segments[end].Before + v, nil
}

// KeepsOrder reports whether the names under a parent certainly sort the same on both sides. A
// client can then page through a list in name order on either side. An empty parent means all
// names.
func (k Way) KeepsOrder(parent string) bool {
	if k.Named() != nil {
		return false
	}
	src, srcAt := k.sourceNames()
	dst, dstAt := k.targetNames()
	if src.whole >= 0 {
		return src.whole == len(src.Segments)-1 && dst.whole == len(dst.Segments)-1 && len(src.variables) == 1 &&
			src.Segments[src.whole].after == "" && dst.Segments[dst.whole].after == ""
	}
	// Segments with values from the parent are equal in all names, and do not affect the order.
	bound := make([]bool, len(k.Variables))
	if parent != "" {
		var err error
		if _, bound, _, err = k.bind(parent); err != nil {
			return false
		}
	}
	// The order is the same if the open variables are, in the same order and with the same text
	// after them.
	open := func(p *Pattern, at []int) (out []openVariable) {
		for i, s := range p.Segments {
			if s.Variable < 0 {
				continue
			}
			slot := at[s.Variable]
			if v := k.Variables[slot]; bound[slot] || v.OneSided && v.Field == nil {
				continue
			}
			out = append(out, openVariable{slot, s.after, i == len(p.Segments)-1})
		}
		return out
	}
	return slices.Equal(open(src, srcAt), open(dst, dstAt))
}

// openVariable is a variable that differs among names. The first open variable with different
// values decides the order of two names. If one value is a prefix of the other, the text after it
// decides: the rest of the segment, and then a slash or the end.
type openVariable struct {
	slot  int
	after string
	last  bool
}
