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

// The methods in this file translate parts of requests from Old to New. Their errors name fields of
// Old.

// Name translates a record's name. It returns an empty name unchanged.
func (r *Resource) Name(name string) (string, error) {
	if name == "" || r.SameNames {
		return name, nil
	}
	return r.UpMapping.Name(name)
}

// Parent translates a parent. It returns "" and "-" unchanged, since they stand for all parents.
func (r *Resource) Parent(parent string) (string, error) {
	if parent == "" || parent == "-" || r.SameNames {
		return parent, nil
	}
	return r.UpMapping.Parent(parent)
}

// Order translates an order_by and checks it against New.
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

// field translates a path of a mask into paths of New.
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

// add appends paths that the mask does not have yet.
func add(mask *fieldmaskpb.FieldMask, paths ...string) {
	for _, p := range paths {
		if !slices.Contains(mask.Paths, p) {
			mask.Paths = append(mask.Paths, p)
		}
	}
}

// UpdateMask translates an update mask. If New joins several fields into one, the mask must have
// all of them. "*" becomes all fields that both versions have, because fields that Old does not
// know must keep their values.
func (r *Resource) UpdateMask(mask *fieldmaskpb.FieldMask) (*fieldmaskpb.FieldMask, error) {
	asked := mask.GetPaths()
	if slices.Contains(asked, "*") {
		// An update never changes the record's name.
		asked = slices.DeleteFunc(fields(r.UpMapping, r.Old), func(p string) bool { return p == string(r.OldName) })
	}
	out := &fieldmaskpb.FieldMask{}
	for _, path := range asked {
		paths, err := r.field(path)
		if err != nil {
			return nil, err
		}
		// Writing a joined field from a part of its sources would reset the other parts.
		for _, p := range paths {
			if missing := r.missing(p, asked); len(missing) > 0 {
				return nil, &transform.MappingError{Field: path, Reason: fmt.Sprintf("can only be changed together with %s: add them to the update mask", strings.Join(missing, ", "))}
			}
		}
		add(out, paths...)
	}
	return out, nil
}

// fields returns the paths of all fields of d that the other version has too.
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

// missing returns the fields of Old that share a path of New and that the client did not ask to
// change.
func (r *Resource) missing(path string, asked []string) []string {
	if path == string(r.NewName) {
		return nil
	}
	back, err := r.DownMapping.Field(path)
	if err != nil {
		return nil // no field of Old depends on it
	}
	return slices.DeleteFunc(slices.Clone(back), func(b string) bool {
		return slices.ContainsFunc(asked, func(a string) bool {
			return a == b || strings.HasPrefix(b, a+".") || strings.HasPrefix(a, b+".")
		})
	})
}

// populated returns a mask of the fields that a message sets, without one.
func populated(m protoreflect.Message, but protoreflect.Name) *fieldmaskpb.FieldMask {
	out := &fieldmaskpb.FieldMask{}
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); m.Has(fd) && fd.Name() != but {
			out.Paths = append(out.Paths, string(fd.Name()))
		}
	}
	return out
}
