"""`make mutants`: small breakages of product code, each of which the tests of its mark must notice."""
