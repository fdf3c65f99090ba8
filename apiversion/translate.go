package apiversion

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// The methods of this file turn parts of requests in terms of Old into terms of New.
// Their errors name fields of Old.

// Name translates the name of a record. Empty stays empty.
func (r *Resource) Name(name string) (string, error) {
	if name == "" || r.SameNames {
		return name, nil
	}
	return r.UpMapping.Name(name)
}

// Parent translates a parent. Empty and "-", which stand for all, stay.
func (r *Resource) Parent(parent string) (string, error) {
	if parent == "" || parent == "-" || r.SameNames {
		return parent, nil
	}
	return r.UpMapping.Parent(parent)
}

// Order translates an order_by.
func (r *Resource) Order(o listing.Order) (listing.Order, error) {
	out := make(listing.Order, len(o))
	for i, f := range o {
		path, err := r.orderPath(f.Path)
		if err != nil {
			return nil, mappingError(f.Path, err)
		}
		out[i] = listing.OrderField{Path: path, Desc: f.Desc}
	}
	return out.Check(r.New)
}

func (r *Resource) orderPath(path string) (string, error) {
	switch {
	case path != string(r.OldName):
		return r.UpMapping.Order(path)
	case r.NewName == "":
		return "", &transform.MappingError{Field: path, Reason: "is no field of the other version"}
	default:
		return string(r.NewName), nil
	}
}

// field maps a path of a mask.
func (r *Resource) field(path string) ([]string, error) {
	if r.OldName != "" && path == string(r.OldName) && r.NewName != "" {
		return []string{string(r.NewName)}, nil
	}
	paths, err := r.UpMapping.Field(path)
	if err != nil {
		return nil, mappingError(path, err)
	}
	return paths, nil
}

func add(mask *fieldmaskpb.FieldMask, paths ...string) {
	for _, p := range paths {
		if !slices.Contains(mask.Paths, p) {
			mask.Paths = append(mask.Paths, p)
		}
	}
}

// UpdateMask translates an update mask. A field that is one with others in New can only
// be set together with all of them. "*" becomes all fields that both versions have, for
// those that Old does not know must stay.
func (r *Resource) UpdateMask(mask *fieldmaskpb.FieldMask) (*fieldmaskpb.FieldMask, error) {
	asked := mask.GetPaths()
	if slices.Contains(asked, "*") {
		asked = slices.DeleteFunc(fields(r.UpMapping, r.Old), func(p string) bool { return p == string(r.OldName) })
	}
	out := &fieldmaskpb.FieldMask{}
	for _, path := range asked {
		paths, err := r.field(path)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			if missing := r.missing(p, asked); len(missing) > 0 {
				return nil, &transform.MappingError{Field: path, Reason: fmt.Sprintf("can only be changed together with %s: add them to the update mask", strings.Join(missing, ", "))}
			}
		}
		add(out, paths...)
	}
	return out, nil
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

// missing returns the fields of Old that a path of New holds too, and that are not asked
// to be changed.
func (r *Resource) missing(path string, asked []string) []string {
	if path == string(r.NewName) {
		return nil
	}
	back, err := r.DownMapping.Field(path)
	if err != nil {
		return nil // it has no field of its own in Old
	}
	return slices.DeleteFunc(slices.Clone(back), func(b string) bool {
		return slices.ContainsFunc(asked, func(a string) bool {
			return a == b || strings.HasPrefix(b, a+".") || strings.HasPrefix(a, b+".")
		})
	})
}

// populated is the mask of what a message sets.
func populated(m protoreflect.Message, but protoreflect.Name) *fieldmaskpb.FieldMask {
	out := &fieldmaskpb.FieldMask{}
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); m.Has(fd) && fd.Name() != but {
			out.Paths = append(out.Paths, string(fd.Name()))
		}
	}
	return out
}
