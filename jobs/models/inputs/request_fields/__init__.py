"""Fields that requests may have, of all APIs: the table that they are checked and described by."""
