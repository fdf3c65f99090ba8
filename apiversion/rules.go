package apiversion

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller/apiversion/listing"
)

// rules are the differences as one direction sees them.
type rules struct {
	from, to protoreflect.MessageDescriptor
	all      []Difference // old is from, new is to
	byPath   map[string]int
	targets  map[string]bool
	names    *Names
	// nameFrom and nameTo are the fields that hold the name; see Resource.checked.
	nameFrom, nameTo protoreflect.Name
}

func newRules(from, to protoreflect.MessageDescriptor, all []Difference) (*rules, error) {
	r := &rules{from: from, to: to, all: all, byPath: map[string]int{}, targets: map[string]bool{}}
	for i, d := range all {
		if d.names != nil {
			r.names = d.names
			if d.names.Up == nil || d.names.Down == nil || d.names.ParentUp == nil || d.names.ParentDown == nil {
				return nil, errors.New("Names needs all four functions")
			}
		}
		for _, p := range d.old {
			fd := leaf(from, p)
			if fd == nil {
				return nil, fmt.Errorf("it has no field %s below messages", p)
			}
			if _, twice := r.byPath[p]; twice {
				return nil, fmt.Errorf("two differences name %s", p)
			}
			if d.up != nil && (fd.IsList() || fd.IsMap() || listing.IsMessage(fd)) {
				return nil, fmt.Errorf("%s has no single value to convert", p)
			}
			r.byPath[p] = i
		}
		for _, p := range d.new {
			r.targets[p] = true
		}
		if len(d.old) == 1 && len(d.new) == 1 && d.up == nil {
			if a, b := leaf(from, d.old[0]), leaf(to, d.new[0]); b != nil {
				if err := r.compatible(a, b, d.old[0], nil); err != nil {
					return nil, err
				}
			}
		}
	}
	return r, r.complete(from, to, "", nil)
}

// nameIs records which fields hold the name. Tables that share rules record the same.
func (r *rules) nameIs(from, to protoreflect.Name) {
	if r.nameFrom != from || r.nameTo != to {
		r.nameFrom, r.nameTo = from, to
	}
}

// complete checks that every field below has a counterpart.
func (r *rules) complete(from, to protoreflect.MessageDescriptor, prefix string, within []protoreflect.FullName) error {
	if slices.Contains(within, from.FullName()) {
		return nil // recursive messages are the same all the way down
	}
	within = append(within, from.FullName())
	for i := range from.Fields().Len() {
		fd := from.Fields().Get(i)
		path := prefix + string(fd.Name())
		if _, ok := r.byPath[path]; ok {
			continue
		}
		other := to.Fields().ByName(fd.Name())
		if other == nil && r.below(path) && fd.Message() != nil && !fd.IsList() && !fd.IsMap() {
			// All of its fields are declared, or it is incomplete.
			other = fd
		}
		if other == nil {
			return fmt.Errorf("%s has no counterpart in %s: declare a difference for it", path, to.FullName())
		}
		if err := r.compatible(fd, other, path, within); err != nil {
			return err
		}
	}
	return nil
}

// below reports whether a difference names a field within path.
func (r *rules) below(path string) bool {
	for p := range r.byPath {
		if strings.HasPrefix(p, path+".") {
			return true
		}
	}
	return false
}

// compatible checks that a field's value can be copied as it is.
func (r *rules) compatible(a, b protoreflect.FieldDescriptor, path string, within []protoreflect.FullName) error {
	switch {
	case a.Kind() != b.Kind() || a.Cardinality() != b.Cardinality() || a.IsMap() != b.IsMap() || a.HasPresence() != b.HasPresence():
		return fmt.Errorf("%s is of another type in %s: declare how its values convert", path, b.ContainingMessage().FullName())
	case a.IsMap() && a.MapKey().Kind() != b.MapKey().Kind():
		return fmt.Errorf("the keys of %s are of another type in %s", path, b.ContainingMessage().FullName())
	case a.IsMap():
		return r.compatible(a.MapValue(), b.MapValue(), path+".*", within)
	case a.Message() == nil || a.Message() == b.Message():
		return nil
	}
	return r.complete(a.Message(), b.Message(), path+".", within)
}

// leaf finds a field below messages, nil if there is none.
func leaf(d protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	var fd protoreflect.FieldDescriptor
	for part := range strings.SplitSeq(path, ".") {
		if d == nil {
			return nil
		}
		if fd = d.Fields().ByName(protoreflect.Name(part)); fd == nil {
			return nil
		}
		d = nil
		if !fd.IsList() && !fd.IsMap() {
			d = fd.Message()
		}
	}
	return fd
}

// convert is the Converter of a direction.
func (r *rules) convert(msg, have proto.Message) (proto.Message, error) {
	src, err := dynamic(msg, r.from)
	if err != nil {
		return nil, err
	}
	out := dynamicpb.NewMessage(r.to)
	if err := r.copyFields(out, src, ""); err != nil {
		return nil, err
	}
	for _, d := range r.all {
		if err := r.carry(d, out, src, have); err != nil {
			return nil, err
		}
	}
	if name := nameOf(src, r.nameFrom); r.names != nil && r.nameTo != "" && name != "" {
		if name, err = r.names.Up(name); err != nil {
			return nil, err
		}
		out.Set(r.to.Fields().ByName(r.nameTo), protoreflect.ValueOfString(name))
	}
	return out, nil
}

// carry applies one difference to a message.
func (r *rules) carry(d Difference, out, src *dynamicpb.Message, have proto.Message) error {
	switch {
	case len(d.old) == 0 && len(d.new) == 1:
		return r.supply(d, out, have)
	case len(d.old) == 0 || len(d.new) == 0:
		return nil // names, or a field that the other version does not show
	case d.up == nil:
		return r.copyPath(out, src, d.new[0], d.old[0])
	}
	values, any := make([]any, len(d.old)), false
	for i, p := range d.old {
		values[i] = read(src, p)
		any = any || values[i] != nil
		if values[i] == nil {
			values[i] = zero(leaf(r.from, p))
		}
	}
	if !any {
		return nil
	}
	turned, err := d.turn(r, values)
	if err != nil {
		return err
	}
	for i, p := range d.new {
		if err := write(out, p, turned[i]); err != nil {
			return &fieldError{strings.Join(d.old, ", "), err.Error()}
		}
	}
	return nil
}

// turn converts values, and refuses those that would not come back as they are.
func (d Difference) turn(r *rules, values []any) ([]any, error) {
	at := strings.Join(d.old, ", ")
	turned, err := d.up(values)
	if err != nil {
		return nil, &fieldError{at, err.Error()}
	}
	if len(turned) != len(d.new) {
		return nil, &fieldError{at, fmt.Sprintf("was converted to %d values, not %d", len(turned), len(d.new))}
	}
	back, err := d.down(turned)
	if err != nil || len(back) != len(values) {
		return nil, &fieldError{at, "has a value that the other version cannot hold"}
	}
	survives := !allZero(r.to, d.new, turned)
	for i, p := range d.old {
		same, err := listing.Coerce(back[i], leaf(r.from, p))
		survives = survives && err == nil && equalValues(same, values[i])
	}
	if !survives {
		return nil, &fieldError{at, "has a value that the other version cannot hold exactly"}
	}
	return turned, nil
}

// allZero reports values that cannot be distinguished from ones that are not set.
func allZero(d protoreflect.MessageDescriptor, paths []string, values []any) bool {
	for i, p := range paths {
		fd := leaf(d, p)
		x, err := listing.Coerce(values[i], fd)
		if err != nil || fd.HasPresence() || !equalValues(x, zero(fd)) {
			return false
		}
	}
	return true
}

// supply sets a field that the source does not have.
func (r *rules) supply(d Difference, out *dynamicpb.Message, have proto.Message) error {
	if have != nil {
		held, err := dynamic(have, r.to)
		if err != nil {
			return err
		}
		return r.copyPath(out, held, d.new[0], d.new[0])
	}
	if d.value == nil {
		return nil
	}
	return write(out, d.new[0], d.value)
}
