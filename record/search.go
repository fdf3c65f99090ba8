package record

// NameField is the field of a SearchTerm that stands for the name of a record.
const NameField = "_id"

// SearchTerm is one condition of a search. A text consists of words: runs of letters, digits and
// underscores, whatever their case.
type SearchTerm struct {
	// Field is a declared field, or NameField. Empty: any of them.
	Field string
	// Text must occur in the field, all its words next to each other.
	Text string
	// Prefix lets the last word of Text be the beginning of a longer word.
	Prefix bool
	// Not selects the records that do not meet the condition.
	Not bool
}

// SearchRequest asks an index for the records that meet all terms.
type SearchRequest struct {
	Kind  string
	Terms []SearchTerm
	// Prefix selects the records whose names begin with it. Empty: all.
	Prefix string
	// ByName orders the results by name, with names after After. Otherwise the best ones come first,
	// and After has no effect.
	ByName bool
	After  string
	Limit  int // maximum number of results. 0: 1000
}

// SearchPage is the result of a search. An index is behind the records, so a named record may have
// changed or be gone.
type SearchPage struct {
	Names []string
	Done  bool // the request has no more results
	// Last is the name after which the next page begins. It is set for ByName unless Done.
	Last string
}

// SearchTooBroadError means that too many words have the beginning of a SearchTerm with Prefix. The
// search did not run. A longer beginning helps.
type SearchTooBroadError struct{ Beginning string }

func (e *SearchTooBroadError) Error() string {
	return "the beginning " + e.Beginning + " is too short: it has too many words"
}
