package apiversion

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller/apiversion/listing"
	"dbcontroller/transform"
)

var _ transform.ConjunctionMapping = (*rules)(nil)

// Name maps a name by Names, or leaves it.
func (r *rules) Name(name string) (string, error) {
	if r.names == nil || name == "" {
		return name, nil
	}
	return mapped(name, r.names.Up)
}

// Parent maps a parent by Names, or leaves it.
func (r *rules) Parent(parent string) (string, error) {
	if r.names == nil || parent == "" {
		return parent, nil
	}
	return mapped(parent, r.names.ParentUp)
}

func mapped(name string, f func(string) (string, error)) (string, error) {
	out, err := f(name)
	if err != nil {
		return "", &transform.MappingError{Field: name, Reason: err.Error()}
	}
	return out, nil
}

// rule finds the difference that a path is, or lies within; rest is what is below.
func (r *rules) rule(path string) (d Difference, rest string, ok bool) {
	for p := path; ; {
		if i, found := r.byPath[p]; found {
			return r.all[i], strings.TrimPrefix(path[len(p):], "."), true
		}
		cut := strings.LastIndexByte(p, '.')
		if cut < 0 {
			return Difference{}, "", false
		}
		p = p[:cut]
	}
}

// Field maps a path.
func (r *rules) Field(path string) ([]string, error) {
	d, rest, ok := r.rule(path)
	switch {
	case ok && len(d.new) == 0:
		return nil, &transform.MappingError{Field: path, Reason: "has no counterpart in " + string(r.to.FullName())}
	case ok && rest != "":
		return []string{d.new[0] + "." + rest}, nil
	case ok:
		return slices.Clone(d.new), nil
	case r.below(path):
		return r.within(path)
	}
	return []string{path}, nil
}

// within maps a message some of whose fields went elsewhere, field by field.
func (r *rules) within(path string) ([]string, error) {
	fd := leaf(r.from, path)
	var out []string
	for i := range fd.Message().Fields().Len() {
		sub := path + "." + string(fd.Message().Fields().Get(i).Name())
		if d, _, ok := r.rule(sub); ok && len(d.new) == 0 {
			continue // it has a declared value and no place
		}
		paths, err := r.Field(sub)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return r.whole(path, out), nil
}

// whole replaces all fields of a message by the message, so that a mask can also name
// that there is none.
func (r *rules) whole(path string, paths []string) []string {
	to := leaf(r.to, path)
	if to == nil || to.Message() == nil {
		return paths
	}
	var rest []string
	inside := 0
	for _, p := range paths {
		if below, ok := strings.CutPrefix(p, path+"."); ok && !strings.Contains(below, ".") {
			inside++
		} else {
			rest = append(rest, p)
		}
	}
	if inside < to.Message().Fields().Len() {
		return paths
	}
	return append(rest, path)
}

// Compare maps a comparison.
func (r *rules) Compare(c transform.Condition) ([]transform.Condition, error) {
	refuse := func(format string, args ...any) ([]transform.Condition, error) {
		return nil, &transform.MappingError{Field: c.Path, Reason: fmt.Sprintf(format, args...)}
	}
	d, rest, ok := r.rule(c.Path)
	switch {
	case !ok && r.below(c.Path):
		return refuse("has become several fields: compare them one by one")
	case !ok:
		return []transform.Condition{c}, nil
	case len(d.new) == 0:
		return refuse("has no counterpart in %s", r.to.FullName())
	case d.up == nil:
		c.Path = d.new[0]
		if rest != "" {
			c.Path += "." + rest
		}
		return []transform.Condition{c}, nil
	case len(d.old) > 1:
		return refuse("is part of %s in the other version and cannot be compared alone", d.new[0])
	}
	from := leaf(r.from, d.old[0])
	switch c.Op {
	case transform.OpHas:
		if len(d.new) == 1 && leaf(r.to, d.new[0]).HasPresence() {
			return []transform.Condition{{Path: d.new[0], Op: c.Op}}, nil
		}
		return refuse("cannot be asked for by has() in the other version")
	case transform.OpEqual:
		turned, never, err := d.literal(r, from, c.Values[0])
		switch {
		case err != nil:
			return refuse("%s", err)
		case never:
			return []transform.Condition{{Path: d.new[0], Op: transform.OpIn}}, nil
		}
		out := make([]transform.Condition, len(d.new))
		for i, p := range d.new {
			out[i] = transform.Condition{Path: p, Op: c.Op, Values: turned[i : i+1]}
		}
		return out, nil
	case transform.OpIn:
		if len(d.new) > 1 {
			return refuse("has become %s: compare it with ==", strings.Join(d.new, " and "))
		}
		out := transform.Condition{Path: d.new[0], Op: c.Op}
		for _, v := range c.Values {
			turned, never, err := d.literal(r, from, v)
			switch {
			case err != nil:
				return refuse("%s", err)
			case !never:
				out.Values = append(out.Values, turned[0])
			}
		}
		return []transform.Condition{out}, nil
	case transform.OpLess, transform.OpLessEqual, transform.OpGreater, transform.OpGreaterEqual:
		if !d.ordered || len(d.new) > 1 {
			return refuse("sorts differently in the other version: only == and in can be used")
		}
		turned, never, err := d.literal(r, from, c.Values[0])
		switch {
		case err != nil:
			return refuse("%s", err)
		case never:
			return refuse("the value has no exact counterpart in the other version")
		}
		return []transform.Condition{{Path: d.new[0], Op: c.Op, Values: turned}}, nil
	default:
		return refuse("%s cannot be used, for the other version holds other values", c.Op)
	}
}

// CompareAll maps a conjunction; == of all fields that have become one is == of that.
func (r *rules) CompareAll(cs []transform.Condition) ([]transform.Condition, error) {
	var out []transform.Condition
	done := map[int]bool{}
	for i, c := range cs {
		if done[i] {
			continue
		}
		d, _, ok := r.rule(c.Path)
		if !ok || len(d.old) < 2 || c.Op != transform.OpEqual {
			mapped, err := r.Compare(c)
			if err != nil {
				return nil, err
			}
			out = append(out, mapped...)
			continue
		}
		values := make([]any, len(d.old))
		for at, p := range d.old {
			j := slices.IndexFunc(cs, func(o transform.Condition) bool { return o.Path == p && o.Op == transform.OpEqual })
			if p == c.Path {
				j = i // a field may be compared more than once, and each time counts
			}
			if j < 0 {
				return r.Compare(c) // which reports that it cannot be compared alone
			}
			values[at], done[j] = cs[j].Values[0], true
		}
		joined, err := r.joined(d, values)
		if err != nil {
			return nil, &transform.MappingError{Field: c.Path, Reason: err.Error()}
		}
		out = append(out, joined)
	}
	return out, nil
}

// joined compares the one field that several have become.
func (r *rules) joined(d Difference, values []any) (transform.Condition, error) {
	c := transform.Condition{Path: d.new[0], Op: transform.OpEqual}
	if allZero(r.from, d.old, values) {
		c.Values = []any{zero(leaf(r.to, d.new[0]))}
		return c, nil
	}
	turned, err := d.up(values)
	if err != nil {
		return c, err
	}
	if _, err := d.turn(r, values); err != nil {
		c.Op = transform.OpIn // no record holds these together
		return c, nil
	}
	c.Values = turned[:1]
	return c, nil
}

// literal turns a value to compare with. never means that no record has it.
func (d Difference) literal(r *rules, from protoreflect.FieldDescriptor, x any) (turned []any, never bool, err error) {
	if !from.HasPresence() && equalValues(x, zero(from)) {
		for _, p := range d.new {
			to := leaf(r.to, p)
			if to.HasPresence() {
				return nil, false, fmt.Errorf("cannot be compared with its zero value in the other version")
			}
			turned = append(turned, zero(to))
		}
		return turned, false, nil
	}
	if turned, err = d.up([]any{x}); err != nil {
		return nil, false, err
	}
	if _, err := d.turn(r, []any{x}); err != nil {
		return nil, true, nil
	}
	return turned, false, nil
}

// Order maps a field to sort by.
func (r *rules) Order(path string) (string, error) {
	d, rest, ok := r.rule(path)
	switch {
	case !ok && !r.below(path):
		return path, nil
	case ok && len(d.new) == 1 && len(d.old) == 1 && d.ordered:
		if rest != "" {
			return d.new[0] + "." + rest, nil
		}
		return d.new[0], nil
	}
	return "", &transform.MappingError{Field: path, Reason: "sorts differently in the other version"}
}

// fields are the paths of all that a message of this side can hold and the other too.
func fields(m transform.Mapping, d protoreflect.MessageDescriptor) []string {
	var out []string
	for i := range d.Fields().Len() {
		path := string(d.Fields().Get(i).Name())
		if _, err := m.Field(path); err == nil {
			out = append(out, listing.JoinPath([]string{path}))
		}
	}
	return out
}
