// Package keymap maps the _ids of a lens's kind between two versions.
//
// A Form describes the _ids of one side: a Pattern of names, one variable of another type, or a
// document of such parts. Keys joins the forms of both sides by their variables. A Way is Keys in
// one direction, from the source to the target. Reading an _id gives the values of its variables as
// texts. Appending these values in the other form gives the other side's _id. A variable that only
// one side has is a constant, or a field of the other side's record.
//
// The mapping is one to one by construction. An _id has a form in exactly one way or not at all,
// and a text belongs to one value of its type. So two records never get the same _id. An _id that
// the other side cannot have is an error, and the caller refuses the record.
//
// Way also maps the parts of requests: names, and prefixes of names for lists (Parent, Prefix).
// Form.IdOf maps a literal to an _id. Form.Disjoint reports that no _id has two given forms.
//
// The package does not know operations, and does not parse lenses.
package keymap
