// Package changes follows the changes of a MongoDB database. Watch reads keys only, Follow the
// changes of the side that is not served, and Moved what became of collections since a position.
//
// It is not for users and may change with any version.
package changes
